//! Functions of real libraries, patched: their moved instructions, and their results.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_void};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use host::ElfFile;
use host::patch::{Author, Body, PatchPlace, patch_place};
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};
use native::program::{Side, Site, dispatch_at};
use native::returns::{Returns, ReturnsSize};
use native::site::{jump, moved};
use native::{CpuNumber, Environment, Layout, Placement, Process, ThreadId, TimeSource, layout};

/// A function that can be patched.
struct Function {
    /// Address in the file.
    address: u64,
    place: PatchPlace,
    /// The first instruction.
    first: Vec<u8>,
    /// The instructions that give way.
    bytes: Vec<u8>,
}

fn functions(file: &Path, author: Author) -> Vec<Function> {
    let elf = ElfFile::open(file).expect("an ELF file");
    let all = elf.functions();
    let patched = |offset| {
        let place = patch_place(Body::of(&elf, &all, offset, u64::MAX), author).ok()?;
        let bytes = elf.code(offset + place.bytes, place.len.into()).to_vec();
        let first = elf.code(offset + place.bytes - u64::from(place.first), place.first.into()).to_vec();
        Some(Function { address: elf.code_address(offset)?, place, first, bytes })
    };
    all.list.iter().filter_map(|function| patched(function.offset)).collect()
}

/// An installed library, if there is one.
fn installed(name: &str) -> Option<PathBuf> {
    let file = Path::new("/usr/lib/x86_64-linux-gnu").join(name);
    if !file.exists() {
        eprintln!("skipped: there is no {}", file.display());
    }
    file.exists().then_some(file)
}

/// Mnemonic and absolute target of each instruction; everything else is in the bytes of those without a target.
fn meaning(code: &[u8], ip: u64) -> Vec<(Mnemonic, u64, Option<Vec<u8>>)> {
    let one = |i: Instruction| {
        let target =
            if i.is_ip_rel_memory_operand() { i.ip_rel_memory_address() } else { i.near_branch_target() };
        let start = (i.ip() - ip) as usize;
        (i.mnemonic(), target, (target == 0).then(|| code[start..start + i.len()].to_vec()))
    };
    Decoder::with_ip(64, code, ip, DecoderOptions::NONE).into_iter().map(one).collect()
}

#[test]
fn moved_instructions_of_libraries_keep_their_meaning() {
    let names = ["libc.so.6", "libcrypto.so.3", "libstdc++.so.6"];
    for file in names.iter().filter_map(|name| installed(name)) {
        let functions = functions(&file, Author::Unknown);
        let mut changed = 0;
        for function in &functions {
            let from = 0x7f00_0000_0000 + function.address + function.place.bytes;
            for to in [from + (1 << 30), from - (1 << 30)] {
                let moved = moved(&function.bytes, from, to).expect("within reach");
                let end = moved.starts.last().expect("the jump back").1;
                let (body, back) = moved.code.split_at(end.into());
                let mut meant = meaning(&function.bytes, from);
                let mut found = meaning(body, to);
                if let Some((_, target, _)) = meant.pop_if(|(last, ..)| *last == Mnemonic::Call) {
                    // The jump to the called function, and the address to which it returns.
                    let (before, address) = body.split_at(body.len() - 8);
                    assert_eq!(address, (from + function.bytes.len() as u64).to_le_bytes());
                    found = meaning(before, to);
                    assert_eq!(found.pop(), Some((Mnemonic::Jmp, target, None)));
                    assert_eq!(found.pop().map(|(push, ..)| push), Some(Mnemonic::Push));
                }
                assert_eq!(found, meant, "{:x}", function.address);
                let next = from + function.bytes.len() as u64;
                assert_eq!(meaning(back, to + u64::from(end)), [(Mnemonic::Jmp, next, None)]);
                changed += usize::from(body != function.bytes);
            }
        }
        println!("{}: {} functions, {changed} adjusted", file.display(), functions.len());
        assert!(functions.len() > 500 && changed > 20);
    }
}

/// A library whose functions are patched, and a workload that calls them.
struct Case {
    name: &'static str,
    /// Source of the workload: `const char *run(void)` returns its results.
    workload: &'static str,
    compiler: [&'static str; 2],
    /// Number of patched functions that the workload calls at least.
    at_least: usize,
    /// Which programs run: exceptions pass a traced return only where the unwinder is patched, which this test does not do.
    programs: &'static str,
}

const CASES: [Case; 3] = [
    Case { name: "libc.so.6", workload: LIBC, compiler: ["gcc", "-xc"], at_least: 12, programs: "programs" },
    Case {
        name: "libcrypto.so.3",
        workload: LIBCRYPTO,
        compiler: ["gcc", "-xc"],
        at_least: 50,
        programs: "programs",
    },
    Case {
        name: "libstdc++.so.6",
        workload: LIBSTDCXX,
        compiler: ["g++", "-xc++"],
        at_least: 10,
        programs: "entry",
    },
];

const LIBC: &str = r#"
    #include <regex.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <time.h>
    #include <wchar.h>
    #include <search.h>
    static char out[1 << 16];
    static int order(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
    const char *run(void) {
        int n = 0, list[500], i;
        for (i = 0; i < 500; i++) list[i] = i * 7919 % 503;
        qsort(list, 500, sizeof *list, order);
        for (i = 0; i < 500; i++) n += sprintf(out + n, "%d %g %Lf %s|", list[i], i / 3.0, i * 1.5L, i % 2 ? "odd" : "even");
        regex_t pattern;
        regmatch_t at[3];
        regcomp(&pattern, "([0-9]+) 0.(6+)", REG_EXTENDED);
        for (i = 0; i < 20 && !regexec(&pattern, out + 40 * i, 3, at, 0); i++) n += sprintf(out + n, "[%d %d]", at[1].rm_so, at[2].rm_eo);
        regfree(&pattern);
        struct tm tm;
        time_t when = 1234567890;
        gmtime_r(&when, &tm);
        n += strftime(out + n, 100, "%A %d %B %Y %T", &tm);
        n += sprintf(out + n, "%ld", (long)timegm(&tm));
        void *root = 0;
        for (i = 0; i < 300; i++) tsearch(&list[i * 7 % 500], &root, order);
        for (i = 0; i < 300; i++) n += sprintf(out + n, "%d", tfind(&i, &root, order) != 0);
        wchar_t wide[100];
        n += sprintf(out + n, "%d %ls %f %ld", swprintf(wide, 100, L"%d-%ls", 5, L"wide"), wide, strtod("1.5e10x", 0), strtol("-0x77", 0, 16));
        char *copy = 0;
        size_t size;
        FILE *memory = open_memstream(&copy, &size);
        for (i = 0; i < 1000; i++) fprintf(memory, "%x,", i);
        fclose(memory);
        n += sprintf(out + n, "%zu %s", size, copy);
        free(copy);
        for (i = 0; i < 2000; i++) { char *p = malloc(i * 13 % 5000 + 1); p = realloc(p, i * 17 % 9000 + 1); free(p); }
        return out;
    }"#;

const LIBCRYPTO: &str = r#"
    #include <stdio.h>
    #include <string.h>
    typedef void T;
    T *EVP_MD_fetch(T *, const char *, const char *), *EVP_CIPHER_CTX_new(), *EVP_aes_256_gcm(), *EVP_aes_128_cbc(), *EVP_sha256(), *BN_new(), *BN_CTX_new();
    T *EVP_PKEY_new_raw_private_key(int, T *, const unsigned char *, size_t), *EVP_MD_CTX_new();
    int EVP_Digest(const void *, size_t, unsigned char *, unsigned *, T *, T *);
    int PKCS5_PBKDF2_HMAC(const char *, int, const unsigned char *, int, int, T *, int, unsigned char *);
    int EVP_EncryptInit_ex(T *, T *, T *, const unsigned char *, const unsigned char *), EVP_EncryptUpdate(T *, unsigned char *, int *, const unsigned char *, int), EVP_EncryptFinal_ex(T *, unsigned char *, int *);
    int BN_hex2bn(T **, const char *), BN_mod_exp(T *, T *, T *, T *, T *), BN_div(T *, T *, T *, T *, T *), BN_generate_prime_ex();
    char *BN_bn2hex(T *), *BN_bn2dec(T *);
    int EVP_DigestSignInit(T *, T **, T *, T *, T *), EVP_DigestSign(T *, unsigned char *, size_t *, const unsigned char *, size_t);
    void EVP_MD_free(T *), EVP_CIPHER_CTX_free(T *), BN_free(T *), BN_CTX_free(T *), EVP_PKEY_free(T *), EVP_MD_CTX_free(T *), CRYPTO_free(T *, const char *, int);
    static char out[1 << 16];
    static int n;
    static void hex(const char *what, const unsigned char *bytes, int size) { n += sprintf(out + n, "%s ", what); for (int i = 0; i < size; i++) n += sprintf(out + n, "%02x", bytes[i]); }
    const char *run(void) {
        unsigned char data[3000], sum[4096];
        unsigned size;
        int len, i;
        n = 0;
        for (i = 0; i < 3000; i++) data[i] = i * 31;
        const char *names[] = {"SHA256", "SHA1", "MD5", "SHA3-512", "BLAKE2B-512", "SHA512-256", "SM3", "RIPEMD160"};
        for (i = 0; i < 8; i++) {
            T *md = EVP_MD_fetch(0, names[i], 0);
            if (!md) continue;
            EVP_Digest(data, 3000 - i, sum, &size, md, 0);
            hex(names[i], sum, size);
            EVP_MD_free(md);
        }
        PKCS5_PBKDF2_HMAC("secret", 6, data, 16, 100, EVP_sha256(), 48, sum);
        hex("pbkdf2", sum, 48);
        T *ciphers[] = {EVP_aes_256_gcm(), EVP_aes_128_cbc()};
        for (i = 0; i < 2; i++) {
            T *c = EVP_CIPHER_CTX_new();
            EVP_EncryptInit_ex(c, ciphers[i], 0, data, data + 50);
            EVP_EncryptUpdate(c, sum, &len, data, 2999);
            hex("cipher", sum, len);
            EVP_EncryptFinal_ex(c, sum, &len);
            hex("end", sum, len);
            EVP_CIPHER_CTX_free(c);
        }
        T *a = 0, *p = 0, *r = BN_new(), *q = BN_new(), *ctx = BN_CTX_new();
        BN_hex2bn(&a, "123456789abcdef0fedcba98765432100123456789abcdef");
        BN_hex2bn(&p, "ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a08798e3404dd");
        BN_mod_exp(r, a, a, p, ctx);
        char *text = BN_bn2hex(r);
        n += sprintf(out + n, " %s", text);
        CRYPTO_free(text, "", 0);
        BN_div(q, r, p, a, ctx);
        text = BN_bn2dec(q);
        n += sprintf(out + n, " %s", text);
        CRYPTO_free(text, "", 0);
        BN_free(a), BN_free(p), BN_free(r), BN_free(q), BN_CTX_free(ctx);
        T *key = EVP_PKEY_new_raw_private_key(1087 /* Ed25519 */, 0, data, 32), *sign = EVP_MD_CTX_new();
        size_t length = sizeof sum;
        EVP_DigestSignInit(sign, 0, 0, 0, key);
        EVP_DigestSign(sign, sum, &length, data, 1000);
        hex("signature", sum, length);
        EVP_MD_CTX_free(sign), EVP_PKEY_free(key);
        return out;
    }"#;

const LIBSTDCXX: &str = r#"
    #include <algorithm>
    #include <iomanip>
    #include <locale>
    #include <map>
    #include <memory_resource>
    #include <regex>
    #include <sstream>
    #include <stdexcept>
    #include <string>
    #include <thread>
    static std::string out;
    struct Guard { std::ostream &o; ~Guard() { o << "~"; } };
    static void deep(int n, std::ostream &o) { Guard g{o}; if (!n) throw std::out_of_range("deep"); deep(n - 1, o); }
    extern "C" const char *run(void) {
        std::ostringstream o;
        std::map<std::string, int> words;
        std::istringstream in("the quick brown fox jumps over the lazy dog the end 1 2 3");
        for (std::string w; in >> w;) words[w]++;
        for (auto &[w, n] : words) o << std::setw(8) << w << std::hex << n << std::dec << ' ';
        for (auto &w : {"x=1", "longer_name=22", "bad"}) { std::smatch m; std::string s = w; o << std::regex_match(s, m, std::regex("(\\w+)=(\\d+)")) << (m.empty() ? "" : m[2].str()); }
        try { deep(20, o); } catch (std::exception &e) { o << e.what(); }
        try { std::stoi("no number"); } catch (std::invalid_argument &e) { o << e.what(); }
        try { std::string("abc").at(7); } catch (...) { o << "caught"; }
        double d = 0; std::istringstream("3.25e3") >> d; o << std::setprecision(12) << std::scientific << d << std::put_money(12345) << std::boolalpha << true;
        int sum = 0; std::thread([&] { for (int i = 0; i < 1000; i++) sum += std::to_string(i).size(); }).join(); o << sum;
        std::pmr::monotonic_buffer_resource pool; std::pmr::vector<std::pmr::string> v(&pool); for (int i = 0; i < 500; i++) v.emplace_back("entry number " + std::to_string(i)); o << v.back();
        return (out = o.str()).c_str();
    }"#;

/// Functions with the prologues of a compiler: frames, tables, loops, references to themselves, many arguments.
const COMPILED: &str = r#"
    #include <setjmp.h>
    #include <stdarg.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #define E __attribute__((noinline, visibility("default")))
    volatile int zero;
    E int calls(const char *s) { return (int)strlen(s) + zero; }
    E int itself(int n) { void *volatile me = (void *)itself; return n ? itself(n - 1) + (me == (void *)itself) : 0; }
    E int table(int x) { switch (x % 9) { case 0: return calls("a"); case 1: return calls("bb") + 4; case 2: return 7; case 3: return calls("d"); case 4: return 11; case 5: return calls("eeee"); case 6: return itself(x); default: return -x; } }
    E int scan(const char *p) { int n = 0; for (;;) switch (*p++) { case 0: return n; case 'a': n += 1; break; case 'b': n += calls(p); break; case 'c': n *= 3; break; case 'd': n ^= 5; break; case 'e': continue; case 'f': n -= 2; break; case 'g': n += itself(3); break; default: n += 100; } }
    E int walk(int n) { int sum = 0; do { sum += calls("walk") + n; } while (n--); return sum; }
    E int early(int *p) { if (!p) return -1; calls("early"); return *p + calls("early"); }
    E long many(int a, long b, char c, short d, int e, int f, long g, char *h, int i) { char room[200]; snprintf(room, 200, "%d %ld %d %d %d %d %ld %s %d", a, b, c, d, e, f, g, h, i); return strlen(room) + room[a] + calls(room); }
    E double floats(double a, float b, int n) { double r = a; while (n-- > 0) r = r * b + calls("x"); return r; }
    E int variadic(int n, ...) { va_list l; va_start(l, n); int sum = 0; while (n--) sum += va_arg(l, int) + calls("v"); va_end(l); return sum; }
    struct big { long x[9]; };
    E struct big whole(int n) { struct big b; for (int i = 0; i < 9; i++) b.x[i] = n * i + calls("big"); return b; }
    static jmp_buf back;
    E void jumps(int n) { if (!n) longjmp(back, 42); jumps(n - 1); calls("never"); }
    E int lands(int n) { volatile int before = calls("lands"); int got = setjmp(back); if (!got) jumps(n); return got + before; }
    E int sorts(const void *a, const void *b) { return calls("s") - 1 + *(int *)a - *(int *)b; }
    E int tail(int n) { if (n > 3) return walk(n); if (n > 1) return scan("abcdefg"); return table(n + calls("t")); }
    E const char *run(void) {
        static char out[1 << 14]; int n = 0, list[40], i;
        for (i = 0; i < 30; i++) n += sprintf(out + n, "%d %d %d %d,", itself(i), table(i), walk(i), tail(i % 6));
        n += sprintf(out + n, "%d %d %d ", scan("abcabdxxeegffa"), early(0), early(&i));
        n += sprintf(out + n, "%ld %g %d ", many(1, 2, 3, 4, 5, 6, 7, "eight", 9), floats(1.5, 2.5, 7), variadic(5, 1, 2, 3, 4, 5));
        n += sprintf(out + n, "%ld %d ", whole(4).x[8], lands(7));
        for (i = 0; i < 40; i++) list[i] = i * 17 % 41;
        qsort(list, 40, sizeof *list, sorts);
        for (i = 0; i < 40; i++) n += sprintf(out + n, "%d", list[i]);
        return out;
    }"#;

/// Flags that change prologues.
const FLAGS: [&[&str]; 6] = [
    &["-O0"],
    &["-O1", "-fcf-protection=full"],
    &["-O2", "-fcf-protection=none"],
    &["-O2", "-fno-omit-frame-pointer", "-fstack-protector-all"],
    &["-O3", "-fcf-protection=full", "-march=x86-64-v3"],
    &["-Os", "-fno-jump-tables"],
];

#[test]
fn patched_functions_of_a_compiler_return_the_same_results() {
    let folder = tempfile::tempdir().expect("a folder");
    for (number, flags) in FLAGS.iter().enumerate() {
        let source = folder.path().join("functions.c");
        let library = folder.path().join(format!("functions{number}.so"));
        fs::write(&source, COMPILED).expect("written");
        let mut gcc = Command::new("gcc");
        gcc.args(["-w", "-shared", "-fPIC"]).args(*flags).arg("-o").arg(&library).arg(&source);
        assert!(gcc.status().expect("gcc").success());
        for detours in ["counts", "programs"] {
            println!("{flags:?}: {}", run_patched(&library, &library, 5, detours));
        }
    }
}

fn build(case: &Case, output: &Path) -> bool {
    let source = output.with_extension("source");
    fs::write(&source, case.workload).expect("written");
    let [compiler, language] = case.compiler;
    let flags = [language, "-w", "-O1", "-shared", "-fPIC", "-o"];
    let compiled = Command::new(compiler).args(flags).arg(output).arg(&source).status();
    compiled.is_ok_and(|status| status.success())
}

#[test]
fn patched_libraries_return_the_same_results() {
    let folder = tempfile::tempdir().expect("a folder");
    for case in &CASES {
        let workload = folder.path().join(format!("{}.workload.so", case.name));
        let Some(library) = installed(case.name) else { continue };
        if !build(case, &workload) {
            eprintln!("skipped: no compiler `{}`", case.compiler[0]);
            continue;
        }
        println!("{}", run_patched(&library, &workload, case.at_least, "counts"));
        println!("{}", run_patched(&library, &workload, case.at_least, case.programs));
    }
}

/// Runs the workload in another process before and after its library is patched; the line that reports the counts.
fn run_patched(library: &Path, workload: &Path, at_least: usize, detours: &str) -> String {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "patched_child", "--ignored", "--nocapture"])
        .env("PATCHED_AT_LEAST", at_least.to_string())
        .env("PATCHED_DETOURS", detours)
        .env("PATCHED_LIBRARY", library)
        .env("PATCHED_WORKLOAD", workload)
        .output()
        .expect("started");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}", output.status);
    text.lines().find(|line| line.contains("same results")).expect("a report").to_owned()
}

/// Not a test: a test starts it as a program of its own.
#[test]
#[ignore = "started by another test"]
fn patched_child() {
    let variable = |name| std::env::var(name).expect("set by the test that starts this");
    let at_least: usize = variable("PATCHED_AT_LEAST").parse().expect("a number");
    let library = variable("PATCHED_LIBRARY");
    dlopen(&library);
    let workload = dlopen(&variable("PATCHED_WORKLOAD"));
    // SAFETY: the workload defines this function.
    let run: extern "C" fn() -> *const c_char =
        unsafe { std::mem::transmute(libc::dlsym(workload, c"run".as_ptr())) };
    let result = || {
        // SAFETY: the workload returns a string.
        unsafe { CStr::from_ptr(run()) }.to_owned()
    };
    let before = result();
    // The functions of a test are the compiler's.
    let author = if library.starts_with("/usr") { Author::Unknown } else { Author::Compiler };
    let mut functions = functions(Path::new(&library), author);
    let base = base_of(&library);
    let detours = variable("PATCHED_DETOURS");
    let counts = match detours.as_str() {
        "counts" => {
            // These detours change the flags, which the first instruction may have set.
            functions.retain(|function| function.place.undo > 0);
            Counts::Cells(patch(&functions, base))
        }
        which => Counts::Maps(patch_with_programs(&functions, base, which == "entry")),
    };
    let after = result();
    assert_eq!(after, before);
    let (called, calls) = counts.read();
    let patched = functions.len();
    println!("{library}: {patched} functions patched, {calls} calls, same results with {detours}");
    assert!(before.count_bytes() > 200);
    assert!(called.is_none_or(|called| called >= at_least) && calls >= at_least as u64, "{called:?} {calls}");
}

fn dlopen(path: &str) -> *mut c_void {
    let path = CString::new(path).expect("a path");
    // SAFETY: a library without harmful constructors.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    assert!(!handle.is_null(), "{path:?}");
    handle
}

/// Address at which this process has mapped the start of a file.
fn base_of(library: &str) -> u64 {
    let file = fs::canonicalize(library).expect("exists");
    let maps = fs::read_to_string("/proc/self/maps").expect("own maps");
    let line = maps.lines().find(|line| line.ends_with(file.to_str().expect("text"))).expect("mapped");
    u64::from_str_radix(line.split_once('-').expect("a range").0, 16).expect("hex")
}

/// Patches the functions with detours that count calls, and returns the counts.
fn patch(functions: &[Function], base: u64) -> &'static [u64] {
    const ROOM: usize = 64;
    let size = functions.len() * (ROOM + 8);
    let (hint, flags) = (base - (1 << 28), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    // SAFETY: a new mapping.
    let detours = unsafe { libc::mmap(hint as *mut c_void, size, protection, flags, -1, 0) } as u64;
    assert!(detours.abs_diff(base) < 1 << 30, "memory near the library");
    let counts = detours + (functions.len() * ROOM) as u64;
    let memory = File::options().write(true).open("/proc/self/mem").expect("own memory");
    let write = |bytes: &[u8], at: u64| memory.write_all_at(bytes, at).expect("written");
    for (number, function) in functions.iter().enumerate() {
        let detour = detours + (number * ROOM) as u64;
        // incq count(%rip)
        let count = (counts + 8 * number as u64).wrapping_sub(detour + 7) as i32;
        write(&[&[0x48, 0xff, 0x05][..], &count.to_le_bytes()].concat(), detour);
        let place = base + function.address + function.place.bytes;
        let moved = moved(&function.bytes, place, detour + 7).expect("within reach").code;
        assert!(moved.len() + 7 <= ROOM);
        write(&moved, detour + 7);
    }
    for (number, function) in functions.iter().enumerate() {
        let place = base + function.address + function.place.bytes;
        write(&jump(place, detours + (number * ROOM) as u64).expect("within reach"), place);
    }
    // SAFETY: zero at first, written by the detours while the caller runs none.
    unsafe { std::slice::from_raw_parts(counts as *const u64, functions.len()) }
}

/// Counts of the detours.
enum Counts {
    /// A word per function.
    Cells(&'static [u64]),
    /// The maps of a script.
    Maps(Maps),
}

impl Counts {
    /// Number of functions that were called, if it is known, and number of calls.
    fn read(&self) -> (Option<usize>, u64) {
        match self {
            Counts::Cells(cells) => {
                (Some(cells.iter().filter(|count| **count > 0).count()), cells.iter().sum())
            }
            Counts::Maps(maps) => (None, maps.read()),
        }
    }
}

struct Maps {
    layout: Layout,
    region: u64,
    entry_only: bool,
}

/// Programs of all three sides at one function: each counts, and the return knows an argument.
const SCRIPT: &str = "
    uprobe:libcuda:cuMemAlloc_v2 { @calls[func] = count(); @first = sum(arg0 & 255) }
    uretprobe:libcuda:cuMemAlloc_v2 { @kept = sum(arg0 & 255); @spent = max(duration) }
    uretprobe:libcuda:cuMemAlloc_v2 { @returns = count(); @odd = sum(retval & 1) }";

const CPUS: u32 = 4;
/// Room for a dispatch, and for a detour, in bytes.
const DISPATCH: u64 = 4096;
const DETOUR: u64 = 384;

fn image(script: &str) -> (native::Image, Layout, Placement, Vec<(String, Side)>) {
    let src = lang::Source::new("test.ct", script);
    let program = sim::agree::check(&src, &sim::catalog::TestCatalog::of_cuda()).expect("a valid script");
    let options = codegen::Options::new(wire::Features::IN_PROCESS, CPUS);
    let compiled = codegen::compile(&program, &src, &options).expect("a script that compiles");
    let object = sim::session::parse(&compiled).expect("an object that was just written");
    let process = Process {
        cpus: CPUS,
        cpu: CpuNumber::Segment,
        thread: ThreadId::Asked { expected_at: 0x2d0 },
        time: TimeSource::Counter,
        unwind: None,
    };
    let (layout, placement) = Layout::new(&object, CPUS);
    let environment = Environment::Process(process);
    let image = native::translate(&object, &layout, &placement, &environment, layout.code)
        .expect("it runs in a process");
    let side = |program: &wire::manifest::Program| match program.attach {
        wire::manifest::Attach::Functions { side: wire::manifest::Side::Entry, .. } => Side::Entry,
        wire::manifest::Attach::Functions { side: wire::manifest::Side::Return, .. } => Side::Return,
        _ => Side::Session,
    };
    let programs = compiled.manifest.programs.iter().map(|program| (program.symbol.clone(), side(program)));
    (image, layout, placement, programs.collect())
}

/// Patches the functions with detours to the programs of [`SCRIPT`].
fn patch_with_programs(functions: &[Function], base: u64, entry_only: bool) -> Maps {
    let (image, layout, placement, mut programs) = image(SCRIPT);
    let sides: BTreeSet<Side> = programs.iter().map(|(_, side)| *side).collect();
    assert_eq!(sides.len(), 3, "{programs:?}");
    programs.retain(|(_, side)| !entry_only || *side == Side::Entry);
    let named: Vec<_> =
        programs.iter().map(|(symbol, side)| (image.function(symbol).expect("a program"), *side)).collect();
    let size = ReturnsSize::of(functions.len());
    let room = size.code() + DISPATCH + functions.len() as u64 * DETOUR;
    let area = (image.end() + room).next_multiple_of(layout::PAGE);
    let whole = (area + size.area()) as usize;
    let (hint, flags) =
        ((base - (1 << 29)) & !0xfff, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    // SAFETY: a new mapping.
    let region = unsafe { libc::mmap(hint as *mut c_void, whole, protection, flags, -1, 0) } as u64;
    let returns_at = image.end().next_multiple_of(16);
    let (returns, returns_code) = Returns::generate(size, returns_at, area, &image, region);
    let dispatch_start = (returns_at + returns_code.len() as u64).next_multiple_of(16);
    let (dispatch, code) = dispatch_at(dispatch_start, &named, false, Some(&returns));
    let start = (dispatch_start + code.len() as u64).next_multiple_of(16);
    assert!(region.abs_diff(base) < 1 << 30, "memory near the library");
    let memory = File::options().write(true).open("/proc/self/mem").expect("own memory");
    let write = |bytes: &[u8], at: u64| memory.write_all_at(bytes, at).expect("written");
    for (offset, bytes) in &placement.contents {
        write(bytes, region + offset);
    }
    write(&image.code, region + image.start);
    write(&returns_code, region + returns_at);
    write(&returns.contents(), region + area);
    write(&code, region + dispatch_start);
    write(&1u32.to_le_bytes(), region + layout::ACTIVE);
    let (mut next, mut jumps) = (start, vec![]);
    for (number, function) in functions.iter().enumerate() {
        let address = base + function.address;
        // The cookie is the number of the function, as far as the map has cells.
        let cookies = vec![number as u64 % 20; programs.len()];
        let undo = function.place.undo;
        let detour = dispatch.detour(&Site { address, undo, cookies, gate: None }, next, region);
        let place = address + function.place.bytes;
        write(&detour.bytes, region + next);
        let end = next + detour.bytes.len() as u64;
        let instructions = [function.first.as_slice(), &function.bytes].concat();
        let from = place - function.first.len() as u64;
        let moved = moved(&instructions, from, region + end).expect("within reach").code;
        write(&moved, region + end);
        jumps.push((place, region + next + detour.entry));
        next = (end + moved.len() as u64).next_multiple_of(8);
        assert!(next < area);
    }
    for (place, to) in jumps {
        write(&jump(place, to).expect("within reach"), place);
    }
    Maps { layout, region, entry_only }
}

impl Maps {
    /// Sum of a word of the cells of a map.
    fn sum(&self, name: &str, word: u64) -> u64 {
        let maps = &self.layout.maps;
        let map = maps.iter().find(|map| map.def.name.ends_with(name)).expect("a map of the script");
        let cells = (0..map.cpus).flat_map(|cpu| (0..map.def.max_entries).map(move |key| (cpu, key)));
        let at = |(cpu, key)| {
            self.region + map.cells + u64::from(cpu) * map.cpu_size + u64::from(key) * map.stride + 8 * word
        };
        // SAFETY: words of the region, which lives as long as the process.
        cells.map(|cell| unsafe { *(at(cell) as *const u64) }).fold(0, u64::wrapping_add)
    }

    fn read(&self) -> u64 {
        let calls = self.sum("_calls", 0);
        if self.entry_only {
            return calls;
        }
        let (returns, first, kept) = (self.sum("_returns", 0), self.sum("_first", 1), self.sum("_kept", 1));
        // Calls that a longjmp has left, and the call that reads the result.
        assert!(returns <= calls && calls - returns < 20, "{calls} calls, {returns} returns");
        assert!(
            kept <= first && first - kept < 20 * 255,
            "arguments {first} at the entry, {kept} at the return"
        );
        calls
    }
}
