"""Steps of a training with the simulated PyTorch, from known lines, the one after number SLOW late. torch.py STEPS [SLOW]"""
import ctypes
import sys, time

torch = ctypes.CDLL("libtorch_cpu.so")


def first():
    torch.torch_layer()  # FIRST


def second():
    torch.torch_layer()  # SECOND


def _engine_run_backward():
    torch.torch_backward()


def main():
    torch.torch_open()
    for step in range(int(sys.argv[1])):
        first()
        second()
        first()
        _engine_run_backward()  # BACKWARD
        torch.torch_step()  # STEP
        if len(sys.argv) > 2:
            torch.torch_close()  # WAIT
        if sys.argv[2:] == [str(step + 1)]:
            time.sleep(0.12)  # The GPU may still work at its begin.
    torch.torch_close()


main()
