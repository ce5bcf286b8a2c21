// Says what its functions are called with, in the ways that C++ adds to those of C.
#include <cstdio>
#include <memory>
#include <string>

#define CALLED __attribute__((noipa))

namespace ns {

enum class Mode : unsigned char { Fast = 1, Slow = 2 };
enum class Wide : long { Far = 1L << 40 };
struct Base { long id; virtual ~Base() {} };
struct Empty {};
template <typename T> struct Box { T value; int count; };
struct Plain { int a, b; };
struct Copied { int a; Copied(int a) : a(a) {} Copied(const Copied &other) : a(other.a) {} };

class Widget : public Base {
public:
    int width;
    Mode mode;
    Box<short> box;
    std::string name;
    static int counter;

    Widget(int width, const char *name) : width(width), mode(Mode::Slow), box{ 7, 8 }, name(name) { id = 42; }
    CALLED int grow(int by, Mode mode) {
        printf("grow %d %d %d %d %ld %d\n", width, by, int(mode), int(this->mode), id, box.count);
        return width += by;
    }
    CALLED static int fixed(Empty, int x, Plain plain) {
        printf("fixed %d %d\n", x, plain.b);
        return x;
    }
    CALLED Copied make(int n) const {
        printf("make %d %d %d\n", n, n, width);
        return Copied(n);
    }
};
int Widget::counter = 3;

CALLED int take(const Widget &w, Copied copied, Box<long> box, bool flag) {
    printf("take %d %d %ld %d\n", w.width, copied.a, box.value, flag);
    return 1;
}
CALLED void text(std::string s, std::string &&moved, int k) { printf("text %s %s %d\n", s.c_str(), moved.c_str(), k); }
template <typename T> CALLED T generic(T a, T *b) {
    printf("generic %ld %ld\n", long(a), long(*b));
    return a;
}
CALLED long owned(std::unique_ptr<int> p, Wide, std::nullptr_t, int z) {
    printf("owned %d\n", z);
    return z + *p;
}

struct Root { int root; };
struct Virtual : virtual Root {
    int d;
    CALLED Virtual(int x, int y) : d(x) { printf("virtual %d %d\n", x, y); }
};
struct Derived : Virtual { Derived() : Virtual(1, 2) {} };

}

int main() {
    ns::Widget widget(10, "widget");
    widget.grow(5, ns::Mode::Fast);
    ns::Widget::fixed({}, 6, { 1, 2 });
    widget.make(9);
    ns::take(widget, ns::Copied(3), { 11, 12 }, true);
    ns::text("abc", std::string("defg"), 13);
    int small = 4;
    ns::generic(3, &small);
    long large = 6;
    ns::generic(5L, &large);
    ns::owned(std::make_unique<int>(77), ns::Wide::Far, nullptr, 15);
    ns::Derived derived;
    ns::Virtual whole(3, 4);
}
