"""A job that is killed while a child of fork(2) lives, which has copies of its descriptors: outlived.py STEPS"""
import os, runpy, signal, time

runpy.run_path(os.path.join(os.path.dirname(__file__), "torch.py"), run_name="__main__")
if os.fork() == 0:
    os.closerange(0, 3)
    time.sleep(5)
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
