// C++ that is called by traced C functions: exceptions pass them, in several threads, also while other exceptions are handled.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

extern "C" {
typedef int (*callback)(void *data, int n);
int call(callback back, void *data, int n);
int call_twice(callback back, void *data, int n);
}

struct Counted {
    long &count;
    ~Counted() { count++; }
};

static int back(void *data, int n) {
    Counted counted{*static_cast<long *>(data)};
    if (n <= 0) throw std::runtime_error("the last one");
    if (n % 5 == 0) {
        try {
            return call(back, data, n - 3);
        } catch (const std::runtime_error &) {
            std::throw_with_nested(std::logic_error("in between"));
        }
    }
    if (n % 3 == 0) {
        try {
            return call(back, data, n - 2);
        } catch (...) {
            // Another exception comes and goes meanwhile.
            try {
                call(back, data, 0);
            } catch (const std::exception &) {
            }
            if (n % 2) throw;
            return 100;
        }
    }
    return call(back, data, n - 1);
}

static void work(long *result) {
    long destroyed = 0, caught = 0, nested = 0, sum = 0;
    for (int n = 0; n < 3000; n++) {
        try {
            sum += call_twice(back, &destroyed, n % 17);
        } catch (const std::logic_error &outer) {
            try {
                std::rethrow_if_nested(outer);
            } catch (const std::runtime_error &) {
                nested++;
            }
        } catch (const std::runtime_error &) {
            caught++;
        }
    }
    *result = ((destroyed * 1000 + caught) * 1000 + nested) * 1000 + sum % 1000;
}

int main() {
    long results[4];
    std::vector<std::thread> threads;
    for (long &result : results) threads.emplace_back(work, &result);
    for (std::thread &thread : threads) thread.join();
    for (long result : results)
        if (result != 39997885354755) {
            printf("%ld\n", result);
            return 1;
        }
}
