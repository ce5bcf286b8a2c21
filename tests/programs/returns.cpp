// Calls that return, and calls that are left in another way. At the end prints how often each function was entered and has returned.
// Usage: returns [ROUNDS]
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define FUNCTIONS(X) \
    X(throw) X(pass) X(catch) X(jump) X(set) X(recurse) X(exit) X(wait) X(yield) X(fork) X(vfork) X(leaf) X(handler) X(escape) X(tail) \
    X(many) X(wide)
enum Function {
#define NUMBER(name) of_##name,
    FUNCTIONS(NUMBER)
    functions
};
static const char *const names[] = {
#define NAME(name) "traced_" #name,
    FUNCTIONS(NAME)
};

// Shared with children.
static struct Count { long entered, returned; } *counts;
static void enter(Function f) { __atomic_fetch_add(&counts[f].entered, 1, __ATOMIC_RELAXED); }
static void leave(Function f) { __atomic_fetch_add(&counts[f].returned, 1, __ATOMIC_RELAXED); }

#define TRACED extern "C" __attribute__((noinline, noclone))

static void require(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "wrong: %s\n", what);
    _exit(1);
}

static int destroyed;
struct Guard { ~Guard() { __atomic_fetch_add(&destroyed, 1, __ATOMIC_RELAXED); } };

TRACED int traced_leaf(int n) { enter(of_leaf); leave(of_leaf); return n + 1; }

// Exceptions.
TRACED void traced_throw(int n) { enter(of_throw); throw n; }
TRACED void traced_pass(int n) {
    enter(of_pass);
    Guard guard;
    if (n > 0) traced_pass(n - 1); else traced_throw(7);
    leave(of_pass);
}
TRACED int traced_catch(int n) {
    enter(of_catch);
    int caught = 0;
    try { traced_pass(n); } catch (int number) { caught = number; }
    leave(of_catch);
    return caught;
}
static void exceptions() {
    int before = destroyed;
    require(traced_catch(5) == 7, "an exception");
    require(destroyed == before + 6, "destructors of an exception");
}

// longjmp.
static jmp_buf jump;
TRACED void traced_jump(int n) { enter(of_jump); if (n > 0) traced_jump(n - 1); else longjmp(jump, 5); leave(of_jump); }
TRACED int traced_set() {
    enter(of_set);
    int result = setjmp(jump);
    if (!result) traced_jump(3);
    leave(of_set);
    return result;
}

TRACED int traced_recurse(int n) {
    enter(of_recurse);
    int sum = n > 0 ? traced_recurse(n - 1) + n : traced_leaf(0);
    leave(of_recurse);
    return sum;
}

// Threads that end within a call.
static int ready[2];
TRACED void traced_exit() { enter(of_exit); Guard guard; pthread_exit((void *)3); }
TRACED void traced_wait() {
    enter(of_wait);
    Guard guard;
    require(write(ready[1], "", 1) == 1, "a pipe");
    for (;;) pause();
}
static void *exiting(void *) { Guard guard; traced_exit(); return nullptr; }
static void *waiting(void *) { Guard guard; traced_wait(); return nullptr; }
static void threads() {
    int before = destroyed;
    pthread_t thread;
    void *result;
    char byte;
    pthread_create(&thread, nullptr, exiting, nullptr);
    pthread_join(thread, &result);
    require(result == (void *)3, "the result of a thread");
    pthread_create(&thread, nullptr, waiting, nullptr);
    require(read(ready[0], &byte, 1) == 1, "a pipe");
    pthread_cancel(thread);
    pthread_join(thread, &result);
    require(result == PTHREAD_CANCELED, "a thread that was cancelled");
    require(destroyed == before + 4, "destructors of threads");
}

// Coroutines, which take turns, and end on another thread.
static ucontext_t coroutines[2], resumer;
static char stacks[2][64 << 10];
static bool ended[2];
TRACED int traced_yield(int which, int n) {
    enter(of_yield);
    int sum = n > 0 ? traced_yield(which, n - 1) + n : 0;
    swapcontext(&coroutines[which], &resumer);
    leave(of_yield);
    return sum;
}
static void coroutine(int which) {
    require(traced_yield(which, 4) == 10, "a sum in a coroutine");
    ended[which] = true;
    swapcontext(&coroutines[which], &resumer);
}
static void *resume(void *turns) {
    for (long turn = 0; turn < (long)turns; turn++)
        if (!ended[turn % 2]) swapcontext(&resumer, &coroutines[turn % 2]);
    return nullptr;
}
static void take_turns() {
    for (int which = 0; which < 2; which++) {
        ended[which] = false;
        getcontext(&coroutines[which]);
        coroutines[which].uc_stack.ss_sp = stacks[which];
        coroutines[which].uc_stack.ss_size = sizeof stacks[which];
        makecontext(&coroutines[which], (void (*)())coroutine, 1, which);
    }
    resume((void *)5);
    pthread_t thread;
    pthread_create(&thread, nullptr, resume, (void *)20);
    pthread_join(thread, nullptr);
    require(ended[0] && ended[1], "coroutines");
}

// Processes: a fork returns twice, and after vfork a child uses the stack of its parent.
TRACED pid_t traced_fork() { enter(of_fork); pid_t child = fork(); leave(of_fork); return child; }
TRACED int traced_vfork() {
    enter(of_vfork);
    pid_t child = vfork();
    if (child == 0) {
        if (traced_leaf(1) == 2) execl("/bin/true", "true", nullptr);
        _exit(9);
    }
    int status;
    require(waitpid(child, &status, 0) == child && status == 0, "a child of vfork");
    leave(of_vfork);
    return 1;
}
static void processes() {
    pid_t child = traced_fork();
    if (child == 0) _exit(traced_recurse(3) == 7 ? 0 : 1);
    int status;
    require(waitpid(child, &status, 0) == child && status == 0, "a child of fork");
    require(traced_vfork() == 1, "vfork");
}

// Signals: handlers call traced functions within traced functions, and one leaves by a jump.
static sigjmp_buf escape;
static volatile sig_atomic_t handled;
TRACED void traced_handler() { enter(of_handler); traced_recurse(2); handled = handled + 1; leave(of_handler); }
TRACED void traced_escape() { enter(of_escape); siglongjmp(escape, 1); }
static void on_timer(int) { traced_handler(); }
static void on_user(int) { traced_escape(); }
static void signals() {
    signal(SIGALRM, on_timer);
    itimerval often = {{0, 200}, {0, 200}}, never = {};
    handled = 0;
    setitimer(ITIMER_REAL, &often, nullptr);
    for (int i = 0; handled < 20; i = traced_leaf(i)) traced_recurse(3);
    setitimer(ITIMER_REAL, &never, nullptr);
    stack_t alternate = {};
    alternate.ss_sp = stacks[0];
    alternate.ss_size = sizeof stacks[0];
    sigaltstack(&alternate, nullptr);
    struct sigaction action = {};
    action.sa_handler = on_user;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &action, nullptr);
    if (sigsetjmp(escape, 1) == 0) raise(SIGUSR1);
    alternate.ss_flags = SS_DISABLE;
    sigaltstack(&alternate, nullptr);
}

// A jump to another function at the end, arguments on the stack, and results in all registers.
TRACED __attribute__((optimize("optimize-sibling-calls"))) int traced_tail(int n) {
    enter(of_tail);
    leave(of_tail);
    return traced_leaf(n);
}
struct Wide { long a, b, c; };
TRACED long double traced_wide(Wide one, double two, long double three, Wide four) {
    enter(of_wide);
    long double sum = one.a + one.b + one.c + two + three + four.a + four.b + four.c;
    leave(of_wide);
    return sum;
}
struct Pair { double first; long second; };
TRACED Pair traced_many(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k, int l, double m) {
    enter(of_many);
    leave(of_many);
    return {m, a + 2L * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j + 11 * k + 12 * l};
}
static void values() {
    require(traced_tail(4) == 5, "a jump");
    require(traced_wide({1, 2, 3}, 0.5, 0.25L, {4, 5, 6}) == 21.75L, "structs on the stack");
    Pair pair = traced_many(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2.5);
    require(pair.first == 2.5 && pair.second == 78, "arguments on the stack");
}

int main(int, char **argv) {
    void *shared = mmap(nullptr, sizeof(Count) * functions, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    counts = (Count *)shared;
    require(pipe(ready) == 0, "a pipe");
    for (int rounds = argv[1] ? atoi(argv[1]) : 10; rounds > 0; rounds--) {
        exceptions();
        require(traced_set() == 5, "a jump");
        require(traced_recurse(300) == 45151, "a recursion");
        threads();
        take_turns();
        processes();
        signals();
        values();
    }
    for (int f = 0; f < functions; f++) {
        printf("@entry[%s]: %ld\n", names[f], counts[f].entered);
        if (counts[f].returned) printf("@return[%s]: %ld\n", names[f], counts[f].returned);
    }
    puts("end");
}
