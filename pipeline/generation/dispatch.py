"""Several generators behind one: which of them a group goes to, and new weights for all of them at once.

A group stays whole on one generator. It goes to the one that had its task last, whose caches know the
prompt and whose history knows the answers, unless that one has more to do than the least busy by more than
a group; then to the least busy. A later turn goes to the one that had the first, on the same terms.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace

from pipeline.generation.generator import Generator, GeneratorError
from pipeline.messages import Completion, GenerationRequest, WeightsLoaded, WeightUpdate

_MAX_REMEMBERED = 65_536


class Dispatcher:
    """A Generator over ``generators``, at least one; it owns and closes them.

    ``update_timeout_s`` is for all of them together to load new weights.
    """

    def __init__(self, generators: Sequence[Generator], *, update_timeout_s: float) -> None:
        assert generators
        self._generators = tuple(generators)
        self._update_timeout_s = update_timeout_s
        self._loads = [0] * len(generators)  # completions asked for and not yet received
        # The generator that had a prompt last, or a request whose completions have later turns, and the
        # number of completions.
        self._last_of: OrderedDict[tuple[int, ...] | str, tuple[int, int]] = OrderedDict()

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """See pipeline.generation.generator.Generator; the request's completions all come from one generator.

        Raises:
            GeneratorError: that generator failed; the message says which.
        """
        index = self._choose(request)
        num_owed = request.num_generations
        self._loads[index] += num_owed
        stream = self._generators[index].generate(request)
        try:
            async with aclosing(stream):  # type: ignore[type-var]
                async for completion in stream:
                    self._loads[index] -= 1
                    num_owed -= 1
                    yield completion
        except GeneratorError as error:
            raise GeneratorError(f"generator {index} of {len(self._generators)}: {error}") from error
        finally:
            self._loads[index] -= num_owed

    def _choose(self, request: GenerationRequest) -> int:
        least = min(self._loads)
        found = self._last_of.pop(request.prompt_ids, None)
        if found is None:
            # A later turn is REQUEST/INDEX/turn N, of one completion.
            found = self._last_of.get(request.request_id.rsplit("/", 2)[0])
        index, size = found or (self._loads.index(least), 0)
        if self._loads[index] > least + max(size, request.num_generations):
            index = self._loads.index(least)
        for key in (request.prompt_ids, request.request_id):
            self._last_of[key] = index, request.num_generations
        while len(self._last_of) > _MAX_REMEMBERED:
            self._last_of.popitem(last=False)
        return index

    async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
        """Load ``update`` in all generators at once; the pause is the longest of theirs.

        Raises:
            GeneratorError: not all of them have it in time; the message names those and says why. The
                versions then differ, so nothing more may be generated.
        """
        indices = range(len(self._generators))
        answers = await asyncio.gather(*(self._update_one(index, update) for index in indices))
        loaded = [answer for answer in answers if isinstance(answer, WeightsLoaded)]
        faults = [answer for answer in answers if isinstance(answer, str)]
        if faults:
            raise GeneratorError(
                f"weights {update.policy_version} are in {len(loaded)} of {len(answers)} generators, and "
                f"their versions must agree: {'; '.join(faults)}"
            )
        # Each holds itself against the update. One that is being started again has no receipt yet.
        fullest = max(loaded, key=lambda one: len(one.receipt))
        return replace(fullest, pause_s=max(one.pause_s for one in loaded))

    async def stats(self) -> dict[str, float]:
        """The sums over all of them."""
        answers = await asyncio.gather(*(generator.stats() for generator in self._generators))
        names = {name for answer in answers for name in answer}
        return {name: sum(answer.get(name, 0.0) for answer in answers) for name in names}

    async def sleep(self) -> None:
        """See pipeline.generation.generator.Generator; raises what one of them raised."""
        await asyncio.gather(*(generator.sleep() for generator in self._generators))

    async def wake(self) -> None:
        """See pipeline.generation.generator.Generator; raises what one of them raised."""
        await asyncio.gather(*(generator.wake() for generator in self._generators))

    async def reset(self) -> None:
        """See pipeline.generation.generator.Generator; raises what one of them raised."""
        await asyncio.gather(*(generator.reset() for generator in self._generators))

    async def _update_one(self, index: int, update: WeightUpdate) -> WeightsLoaded | str:
        """Its answer, or what went wrong."""
        try:
            async with asyncio.timeout(self._update_timeout_s) as limit:
                return await self._generators[index].update_weights(update)
        except Exception as error:
            if limit.expired():
                return (
                    f"generator {index} did not load them within {self._update_timeout_s:g} s "
                    "(runtime.weight_update_timeout_s)"
                )
            return f"generator {index} failed: {str(error) or type(error).__name__}"

    async def close(self) -> None:
        """Close all of them; the first error, if any, is raised when all have been tried."""
        results = await asyncio.gather(
            *(generator.close() for generator in self._generators), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
