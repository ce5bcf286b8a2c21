// Throws through a function a hundred times.
static volatile int thrown;

extern "C" __attribute__((noinline)) void traced_call(int number) {
    thrown = number;
    throw number;
}

int main() {
    int caught = 0;
    for (int i = 0; i < 100; i++) {
        try {
            traced_call(i);
        } catch (int) {
            caught++;
        }
    }
    return caught != 100;
}
