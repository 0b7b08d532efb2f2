"""The cluster section: a Ray cluster of several nodes."""

from __future__ import annotations

from pydantic import Field, model_validator

from configs.errors import ConfigError, wrong_value
from configs.section import Section, Text


class ClusterConfig(Section):
    """Where the stages run when one machine is not enough (docs/cluster.md)."""

    address: Text | None = Field(
        default=None,
        description="Ray cluster to run on: HOST:PORT, or auto for that of this node; default: this machine",
    )
    generator_resource: Text | None = Field(
        default=None,
        description="custom Ray resource of which every generator takes 1: it runs on nodes that offer it",
    )
    reward_resource: Text | None = Field(
        default=None, description="the same for every reward worker; default: any node, spread out"
    )

    @model_validator(mode="after")
    def _check_resources(self) -> ClusterConfig:
        given = ("generator_resource", "reward_resource")
        unused = [name for name in given if self.address is None and getattr(self, name) is not None]
        if unused:
            allowed = "nothing without cluster.address: resources are those of a cluster's nodes"
            raise ConfigError([wrong_value(name, getattr(self, name), allowed, "address") for name in unused])
        return self
