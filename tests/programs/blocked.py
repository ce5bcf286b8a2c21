"""Threads that wait in `select`, each within functions of another kind: they begin after a line on the standard input, with which the program ends."""
import asyncio
import ctypes
import os
import select
import sys
import threading
import time


def wait():
    select.select([], [], [], 1000)


def in_generator():
    def made():
        yield wait()
    for _ in made():
        pass


async def inner():
    wait()


async def outer():
    await inner()


def in_coroutine():
    asyncio.run(outer())


def in_callback():
    ctypes.CFUNCTYPE(None)(wait)()


def in_lambda():
    sorted([1], key=lambda _: wait())


def in_exec():
    exec("wait()")


class Made:
    def __init__(self):
        wait()


def in_class():
    Made()


def in_recursion(depth=20):
    return in_recursion(depth - 1) if depth else wait()


def main():
    print("ready", flush=True)
    sys.stdin.readline()
    for way in [in_generator, in_coroutine, in_callback, in_lambda, in_exec, in_class, in_recursion]:
        threading.Thread(target=way, daemon=True).start()
    time.sleep(0.5)
    print("waiting", flush=True)
    sys.stdin.readline()
    os._exit(0)


main()
