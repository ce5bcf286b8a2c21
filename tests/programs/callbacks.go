// Go that is called by traced C functions: panics pass them, stacks of goroutines move meanwhile, and signals arrive.
package main

/*
typedef int (*callback)(void *data, int n);
int call(callback back, void *data, int n);
int call_twice(callback back, void *data, int n);
int deep(int n);
int goBack(void *data, int n);
static int twice(int n) { return call_twice(goBack, 0, n); }
static int once(int n) { return call(goBack, 0, n); }
*/
import "C"

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

func grow(n int) int {
	var page [256]byte
	page[n%256] = 1
	if n == 0 {
		return int(page[0])
	}
	return grow(n-1) + int(page[n%256])
}

//export goBack
func goBack(data unsafe.Pointer, n C.int) C.int {
	switch {
	case n%13 == 0:
		panic("through C")
	case n%50 == 0:
		runtime.GC()
	case n%11 == 0:
		return C.int(grow(200)) + C.deep(3)
	case n%5 == 0:
		return C.once(n - 1)
	}
	return n
}

func try(n int) (result int) {
	defer func() {
		if recover() != nil {
			result = -1
		}
	}()
	return int(C.twice(C.int(n)))
}

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGUSR1)
	go func() {
		for range signals {
		}
	}()
	go func() {
		for {
			syscall.Kill(os.Getpid(), syscall.SIGUSR1)
			time.Sleep(2 * time.Millisecond)
		}
	}()
	sums := make([]int, 16)
	var group sync.WaitGroup
	for at := range sums {
		group.Add(1)
		go func(sum *int) {
			defer group.Done()
			for n := 1; n <= 4000; n++ {
				*sum += try(n) + int(C.deep(C.int(n%8)))
				if n%10 == 0 {
					runtime.Gosched()
				}
			}
		}(&sums[at])
	}
	group.Wait()
	for _, sum := range sums {
		if sum != 12095970 {
			fmt.Println(sum)
			os.Exit(1)
		}
	}
}
