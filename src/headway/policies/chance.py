"""Numbers for policies that try things out: pure, and the same wherever the same is decided again."""

from __future__ import annotations


class RandomNumbers:
    """Numbers that look drawn by chance, the same for the same seed on every machine: two generators combined.

    Source: P. L'Ecuyer, "Efficient and portable combined random number generators", CACM 31(6), 1988.
    """

    __slots__ = ("_first", "_second")

    def __init__(self, seed: int) -> None:
        self._first = 1 + seed % 2_147_483_562
        self._second = 1 + (seed + 12_345) % 2_147_483_398
        for _ in range(10):  # seeds that are near begin alike
            self.draw()

    def draw(self) -> float:
        """The next number, from 0 up to but not 1."""
        self._first = 40_014 * self._first % 2_147_483_563
        self._second = 40_692 * self._second % 2_147_483_399
        return (self._first - self._second) % 2_147_483_562 / 2_147_483_562
