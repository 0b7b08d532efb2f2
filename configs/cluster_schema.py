"""The cluster section: whether Ray runs the stages, and on which nodes."""

from __future__ import annotations

from pydantic import Field

from configs.errors import Problem, wrong_value
from configs.section import Section, Text


class ClusterConfig(Section):
    """Where the stages run when one machine is not enough (docs/cluster.md)."""

    address: Text | None = Field(
        default=None,
        description="Ray to run on: HOST:PORT, auto (the one of this node), or local (the run starts one); "
        "default: none, unless this machine has several GPUs",
    )
    generator_resource: Text | None = Field(
        default=None,
        description="custom Ray resource of which every generator takes 1: it runs on nodes that offer it",
    )
    reward_resource: Text | None = Field(
        default=None, description="the same for every reward worker; default: any node, spread out"
    )

    @property
    def is_joined(self) -> bool:
        """Whether the run joins a Ray cluster that runs already, perhaps of several nodes."""
        return self.address not in (None, "local")

    def _problems(self) -> list[Problem]:
        given = ("generator_resource", "reward_resource")
        unused = [name for name in given if not self.is_joined and getattr(self, name) is not None]
        allowed = "nothing without cluster.address of a cluster: resources are those of its nodes"
        return [wrong_value(name, getattr(self, name), allowed, "address") for name in unused]
