"""Clocks for the ops of a training step: the host's, and a GPU's. stepsim_step.py and stepsim_measure.py
import it; it needs only torch.
"""

import time

import torch


class HostClock:
    """Marks are seconds."""

    PIECE = 0  # There are none.
    TRIES = 1

    @staticmethod
    def start():
        """There is nothing to hold, and a cut is a mark."""

    mark = cut = staticmethod(time.perf_counter)

    @staticmethod
    def seconds(begin, end):
        return end - begin

    @staticmethod
    def finish():
        """Whether the times are of the device alone."""
        return True


class CudaClock:
    """Marks are events of the current stream. A step is put in piece by piece: the stream is held until
    the host has put a piece in, so that its times hold no launches. A piece is short, since the host
    must wait where about a thousand launches are pending.
    """

    PIECE = 32  # Ops.
    TRIES = 3  # Of a step whose stream went on too early.
    CYCLES_PER_S = 2.0e9
    FIRST_HOLD_S, LONGEST_HOLD_S = 0.01, 0.05
    MORE_THAN_LAST = 2.5  # A hold over the host's time of the same piece.

    def __init__(self):
        self.hold_s = {}  # [number of the piece]
        self.pieces, self.is_sound = [], True

    def start(self):
        self.pieces, self.is_sound = [], True
        self.open()

    def open(self):
        torch.cuda.synchronize()
        hold = self.hold_s.get(len(self.pieces), self.FIRST_HOLD_S)
        torch.cuda._sleep(int(hold * self.CYCLES_PER_S))  # pylint: disable=protected-access
        self.begun = time.perf_counter()
        self.pieces.append([self.event(), None])

    def close(self):
        number = len(self.pieces) - 1
        begin, _ = self.pieces[-1]
        self.pieces[-1][1] = self.event()
        host = time.perf_counter() - self.begun
        was_held = not begin.query()
        hold = self.hold_s.get(number, self.FIRST_HOLD_S)
        # A piece that outlasts the longest hold is taken as it ran: so it does in training.
        self.is_sound &= was_held or hold >= self.LONGEST_HOLD_S
        wanted = host * self.MORE_THAN_LAST * (1 if was_held else 2)
        self.hold_s[number] = min(max(wanted, 0.8 * hold), self.LONGEST_HOLD_S)

    def cut(self):
        """Ends a piece and begins the next: a mark between two ops."""
        self.close()
        end = len(self.pieces) - 1, self.pieces[-1][1]
        self.open()
        return end, (len(self.pieces) - 1, self.pieces[-1][0])

    def mark(self):
        """Of a mark, the event that ends what is before it, and the one that begins what is behind."""
        at = len(self.pieces) - 1, self.event()
        return at, at

    @staticmethod
    def event():
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, begin, end):
        """Without what lies between pieces. Only behind finish()."""
        (first, since), (last, until) = begin[1], end[0]
        if first == last:
            return since.elapsed_time(until) / 1e3
        pieces = [(since, self.pieces[first][1]), *self.pieces[first + 1 : last]]
        pieces.append((self.pieces[last][0], until))
        return sum(one.elapsed_time(other) for one, other in pieces) / 1e3

    def finish(self):
        """False where the stream went on before the host had put a piece in."""
        self.close()
        torch.cuda.synchronize()
        return self.is_sound
