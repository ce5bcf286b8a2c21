"""Steps of a training with the simulated PyTorch, from known lines. torch.py STEPS"""
import ctypes
import sys

torch = ctypes.CDLL("libtorch_cpu.so")


def first():
    torch.torch_layer()  # FIRST


def second():
    torch.torch_layer()  # SECOND


def _engine_run_backward():
    torch.torch_backward()


def main():
    torch.torch_open()
    for _ in range(int(sys.argv[1])):
        first()
        second()
        first()
        _engine_run_backward()  # BACKWARD
        torch.torch_step()  # STEP
    torch.torch_close()


main()
