// Three children that only fork, work for half a second, and end.
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) int work(int value) {
    usleep(1);
    return value + 1;
}

int main(void) {
    for (int child = 0; child < 3; child++) {
        if (fork() == 0) {
            for (int call = 0; call < 5; call++) {
                work(call);
                usleep(100000);
            }
            _exit(0);
        }
    }
    while (wait(NULL) > 0) {}
    work(1);
    return 0;
}
