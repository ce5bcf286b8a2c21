"""Calls `mktime` within functions of many kinds, in several threads, and says at the end from where and how often.

frames.py THREADS CALLS [wait]: `wait` begins after a line on the standard input. Each frame is `name (file:line)`, innermost first.
"""
import collections
import functools
import random
import sys
import threading
import time

NOON = time.localtime(10**9)


def shown(frame):
    frames = []
    while frame:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        frames.append("%s (%s:%d)" % (name, code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return "\n".join(frames)


def leaf(way, depth):
    way.counts[shown(sys._getframe())] += 1; time.mktime(NOON)


class Made:
    def __init__(self, way, depth):
        way.step(depth)


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper


class Way:
    """One thread's way through functions."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.counts = collections.Counter()

    def step(self, depth):
        if depth <= 0:
            return leaf(self, depth)
        kinds = [self.plain, self.with_lambda, self.with_map, self.with_generator, self.with_class, self.with_sort,
                 self.with_exec, self.with_list, self.größe, self.with_partial]
        return self.random.choice(kinds)(depth - 1)

    def plain(self, depth):
        return self.step(depth)

    def with_lambda(self, depth):
        return (lambda: self.step(depth))()

    def with_map(self, depth):
        return list(map(self.step, [depth]))

    def with_generator(self, depth):
        def inner():
            yield self.step(depth)
        yielded = inner()
        for _ in yielded:
            pass

    def with_class(self, depth):
        Made(self, depth)

    def with_sort(self, depth):
        sorted([depth], key=self.step)

    def with_exec(self, depth):
        exec("way.step(depth)", {"way": self, "depth": depth})

    def with_list(self, depth):
        return [
            self.step(at)
            for at in [depth]
        ]

    @decorated
    def größe(self, depth):
        return self.step(depth)

    def with_partial(self, depth):
        functools.partial(self.step, depth)()


def run(way, calls):
    for at in range(calls):
        way.step(at % 8)


def main():
    threads, calls = int(sys.argv[1]), int(sys.argv[2])
    if "wait" in sys.argv:
        print("ready", flush=True)
        sys.stdin.readline()
    ways = [Way(seed) for seed in range(threads)]
    others = [threading.Thread(target=run, args=(way, calls)) for way in ways[1:]]
    for other in others:
        other.start()
    run(ways[0], calls)
    for other in others:
        other.join()
    for stack, count in sum((way.counts for way in ways), collections.Counter()).items():
        print("%s\n= %d" % (stack, count), flush=False)


main()
