// Threadgroups on a CPU: a fiber for each GPU thread, one threadgroup after another.
//
// Between rendezvous (barriers, SIMD-group operations) a fiber runs undisturbed; the launch's seed picks the order in which
// fibers run, so that a missing barrier gives other results under another seed. A rendezvous that not every lane reaches at
// the same line is undefined in MSL and an error here, as are a barrier that a thread left early, more than 32 KiB of
// threadgroup memory, and an access outside of a buffer, which ends on a page that the system protects. Threadgroup memory
// begins as NaN in every floating-point format.
#pragma once
#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <type_traits>
#include <vector>

namespace msl {

constexpr unsigned kLanes = 32;
constexpr unsigned kMaxThreads = 1024;
// No power of two, or all stacks would meet in one set of the cache.
constexpr size_t kStack = (64 << 10) + 9 * 64;
constexpr size_t kThreadgroupBytes = 32 << 10;
constexpr unsigned kMaxStorages = 256;

#if defined(__x86_64__)
// msl_switch(save, load): keeps the callee's registers on this stack, its top in *save, and goes on at `load`.
asm(R"(
.text
.type msl_switch,@function
msl_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rax
  jmpq *%rax
.type msl_start,@function
msl_start:
  movq %r12, %rdi
  callq *%r13
  ud2
)");
extern "C" void msl_switch(void **save, void *load) __attribute__((visibility("hidden")));
extern "C" void msl_start() __attribute__((visibility("hidden")));
#else
#error "msl_switch is written for x86-64 alone"
#endif

struct uint3_t { unsigned x, y, z; };
template <bool B, class T = void> using enable_if_t = std::enable_if_t<B, T>;

enum class Wait : uint8_t { None, Simd, Group, Done };

struct Group;

struct Fiber {
  void *sp = nullptr;
  char *stack = nullptr;
  Group *group = nullptr;
  unsigned index = 0;
  Wait wait = Wait::None;
  unsigned line = 0;
  uint32_t generation = 0;
};

struct Simd {
  unsigned size = 0, live = 0, arrived = 0, line = 0;
  uint32_t generation = 0;
  alignas(16) unsigned char value[2][kLanes][16];
  alignas(16) float result[2][64];  // what the last lane to come worked out
};

struct Launch;

struct Group {
  const Launch *launch = nullptr;
  uint3_t position;
  std::vector<Fiber> fibers;
  std::vector<Simd> simds;
  unsigned live = 0, arrived = 0, exited = 0, line = 0;
  uint32_t generation = 0;
  void *scheduler = nullptr;
  alignas(16) unsigned char shared[kThreadgroupBytes];
  size_t shared_used = 0;
  int storage_offset[kMaxStorages];
  bool failed = false;
  std::string error;
  sigjmp_buf escape;
};

inline thread_local Fiber *current = nullptr;

using Body = void (*)(Group &, unsigned thread);

struct Launch {
  Body body;
  void *const *buffers;
  uint3_t grid, threads;  // threadgroups of the grid, threads of a threadgroup
  uint64_t seed;          // 0: in order
};

struct Kernel { const char *name; Body body; };

inline void yield_fiber() {
  Fiber *f = current;
  msl_switch(&f->sp, f->group->scheduler);
}

[[noreturn]] inline void fail(std::string why) {
  Group &g = *current->group;
  if (!g.failed) { g.failed = true; g.error = std::move(why); }
  for (;;) yield_fiber();
}

inline std::string at_line(unsigned line) { return "line " + std::to_string(line); }
inline unsigned lane() { return current->index % kLanes; }
inline Simd &simd() { return current->group->simds[current->index / kLanes]; }
inline unsigned simd_size() { return simd().size; }

// Waits until every lane of the SIMD-group came to this line; the last runs `last`.
template <class F> inline void simd_rendezvous(unsigned line, F last) {
  Simd &s = simd();
  if (s.live != s.size) fail("SIMD-group operation at " + at_line(line) + " after one of its lanes had returned");
  if (s.arrived == 0) s.line = line;
  else if (s.line != line)
    fail("divergent SIMD-group operation: thread " + std::to_string(current->index) + " at " + at_line(line) +
         ", another lane at " + at_line(s.line));
  if (++s.arrived == s.live) { last(); s.arrived = 0; s.generation++; return; }
  current->wait = Wait::Simd;
  current->line = line;
  current->generation = s.generation;
  yield_fiber();
}

inline void simd_rendezvous(unsigned line) { simd_rendezvous(line, [] {}); }

// All lanes' values to the last lane to come, which works out what every lane gets.
template <class T, class F> inline T simd_reduce(T mine, unsigned line, F f) {
  static_assert(sizeof(T) <= 16, "");
  Simd &s = simd();
  auto *slots = s.value[s.generation & 1];
  float *result = s.result[s.generation & 1];
  __builtin_memcpy(slots[lane()], &mine, sizeof(T));
  simd_rendezvous(line, [&] {
    T r = f([slots](unsigned l) { T v; __builtin_memcpy(&v, slots[l], sizeof(T)); return v; });
    __builtin_memcpy(result, &r, sizeof(T));
  });
  T r;
  __builtin_memcpy(&r, result, sizeof(T));
  return r;
}

// Publishes `mine`, waits for the others, then `f(values by lane)` in each lane.
template <class T, class F> inline auto simd_exchange(T mine, unsigned line, F f) {
  static_assert(sizeof(T) <= 16, "");
  Simd &s = simd();
  auto *slots = s.value[s.generation & 1];
  __builtin_memcpy(slots[lane()], &mine, sizeof(T));
  simd_rendezvous(line);
  return f([slots](unsigned l) { T v; __builtin_memcpy(&v, slots[l], sizeof(T)); return v; });
}

inline void group_barrier(unsigned line) {
  Group &g = *current->group;
  if (g.exited) fail("threadgroup_barrier at " + at_line(line) + " after a thread had returned");
  if (g.arrived == 0) g.line = line;
  else if (g.line != line) fail("divergent threadgroup_barrier: at " + at_line(line) + " and at " + at_line(g.line));
  if (++g.arrived == g.live) { g.arrived = 0; g.generation++; return; }
  current->wait = Wait::Group;
  current->line = line;
  current->generation = g.generation;
  yield_fiber();
}

// The storage of a `threadgroup` variable: the same for all threads of the group.
template <class T, int Id> inline T *threadgroup_storage() {
  static_assert(Id < int(kMaxStorages), "too many threadgroup variables in one file");
  Group &g = *current->group;
  if (g.storage_offset[Id] < 0) {
    size_t at = (g.shared_used + 15) & ~size_t(15);
    if (at + sizeof(T) > kThreadgroupBytes) fail("more than 32 KiB of threadgroup memory");
    memset(g.shared + at, 0xff, sizeof(T));
    g.storage_offset[Id] = int(at);
    g.shared_used = at + sizeof(T);
  }
  return reinterpret_cast<T *>(g.shared + g.storage_offset[Id]);
}

inline void fiber_main(Fiber *f) {
  Group &g = *f->group;
  g.launch->body(g, f->index);
  f->wait = Wait::Done;
  Simd &s = g.simds[f->index / kLanes];
  s.live--;
  g.live--;
  g.exited++;
  std::string thread = "thread " + std::to_string(f->index) + " returned while ";
  if (g.arrived) fail(thread + "others wait at the threadgroup_barrier of " + at_line(g.line));
  if (s.arrived) fail(thread + "its SIMD-group waits at " + at_line(s.line));
  for (;;) yield_fiber();
}

inline bool runnable(const Fiber &f, const Group &g) {
  switch (f.wait) {
    case Wait::None: return true;
    case Wait::Simd: return g.simds[f.index / kLanes].generation != f.generation;
    case Wait::Group: return g.generation != f.generation;
    case Wait::Done: return false;
  }
  return false;
}

inline uint64_t next_random(uint64_t &state) {
  state ^= state << 13; state ^= state >> 7; state ^= state << 17;
  return state;
}

inline void begin_group(Group &g, uint3_t position, unsigned count) {
  g.position = position;
  g.live = count;
  g.arrived = g.exited = 0;
  g.generation = 0;
  g.shared_used = 0;
  std::fill(g.storage_offset, g.storage_offset + kMaxStorages, -1);
  for (unsigned i = 0; i < (count + kLanes - 1) / kLanes; i++) {
    Simd &s = g.simds[i];
    s.size = s.live = std::min(kLanes, count - i * kLanes);
    s.arrived = 0;
    s.generation = 0;
  }
  for (unsigned i = 0; i < count; i++) {
    Fiber &f = g.fibers[i];
    f.group = &g; f.index = i; f.wait = Wait::None;
    void **top = reinterpret_cast<void **>(f.stack + kStack) - 2;
    *--top = reinterpret_cast<void *>(&msl_start);
    *--top = nullptr;                                // rbp
    *--top = nullptr;                                // rbx
    *--top = &f;                                     // r12
    *--top = reinterpret_cast<void *>(&fiber_main);  // r13
    *--top = nullptr;                                // r14
    *--top = nullptr;                                // r15
    f.sp = top;
  }
}

inline std::string deadlock(const Group &g, unsigned count) {
  std::string error = "deadlock:";
  unsigned shown = 0;
  for (unsigned i = 0; i < count && shown < 4; i++) {
    const Fiber &f = g.fibers[i];
    if (f.wait == Wait::Done) continue;
    error += " thread " + std::to_string(i) + (f.wait == Wait::Simd ? " waits for its SIMD-group at " : " waits at a barrier at ") + at_line(f.line) + ";";
    shown++;
  }
  return error;
}

inline void run_group(Group &g, uint3_t position, unsigned count) {
  const Launch &l = *g.launch;
  const unsigned simds = (count + kLanes - 1) / kLanes;
  begin_group(g, position, count);
  uint64_t random = (l.seed ^ (position.x * 0x9e3779b97f4a7c15ull + position.y * 0xd1b54a32d192ed03ull)) | 1;
  while (g.live && !g.failed) {
    bool progress = false;
    const unsigned first_simd = l.seed ? next_random(random) % simds : 0;
    for (unsigned k = 0; k < simds && !g.failed; k++) {
      const unsigned s = (k + first_simd) % simds, begin = s * kLanes, n = std::min(kLanes, count - begin);
      for (bool any = true; any && !g.failed;) {
        any = false;
        const unsigned rotate = l.seed ? next_random(random) % n : 0;
        const bool reverse = l.seed && (random >> 33 & 1);
        for (unsigned i = 0; i < n && !g.failed; i++) {
          const unsigned j = (i + rotate) % n;
          Fiber &f = g.fibers[begin + (reverse ? n - 1 - j : j)];
          if (!runnable(f, g)) continue;
          f.wait = Wait::None;
          current = &f;
          msl_switch(&g.scheduler, f.sp);
          any = progress = true;
        }
      }
    }
    if (!progress && g.live) { g.failed = true; g.error = deadlock(g, count); }
  }
}

// Who handled faults before: the system, or another library of kernels.
inline struct sigaction previous[2];

// A fault of a kernel leaves its fiber for good. Other faults are not ours.
inline void on_fault(int signal, siginfo_t *info, void *context) {
  Fiber *f = current;
  if (!f) {
    const struct sigaction &before = previous[signal == SIGBUS];
    if (before.sa_flags & SA_SIGINFO) before.sa_sigaction(signal, info, context);
    else std::signal(signal, SIG_DFL);
    return;
  }
  Group &g = *f->group;
  g.failed = true;
  char text[128];
  snprintf(text, sizeof text, "thread %u of threadgroup (%u, %u, %u) accessed %p, outside of every buffer", f->index,
           g.position.x, g.position.y, g.position.z, info->si_addr);
  g.error = text;
  siglongjmp(g.escape, 1);
}

inline bool handle_faults() {
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &previous[0]);
  sigaction(SIGBUS, &action, &previous[1]);
  return true;
}

// The calling thread's fibers, made once and given back when it ends.
struct Home {
  Group group;
  void *stacks = MAP_FAILED;
  std::vector<char> signal_stack;
  Home() : signal_stack(64 << 10) {
    static const bool handled = handle_faults();
    (void)handled;
    group.fibers.resize(kMaxThreads);
    group.simds.resize(kMaxThreads / kLanes);
    stacks = mmap(nullptr, kStack * kMaxThreads, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) return;
    for (unsigned i = 0; i < kMaxThreads; i++) group.fibers[i].stack = static_cast<char *>(stacks) + kStack * i;
  }
  ~Home() {
    if (stacks != MAP_FAILED) munmap(stacks, kStack * kMaxThreads);
  }
};

// Runs a grid. An empty string, or why the launch is wrong.
inline std::string run(const Launch &l) {
  const uint64_t count = uint64_t(l.threads.x) * l.threads.y * l.threads.z;
  if (count == 0 || count > kMaxThreads) return "1 to 1024 threads in a threadgroup, not " + std::to_string(count);
  static thread_local Home home;
  Group &g = home.group;
  if (!g.fibers[0].stack) return "no memory for the stacks of the threads";
  // A fault may have come of a stack that ran over: the handler has its own. What was there before comes back.
  stack_t own{}, before{};
  own.ss_sp = home.signal_stack.data();
  own.ss_size = home.signal_stack.size();
  sigaltstack(&own, &before);
  g.launch = &l;
  g.failed = false;
  g.error.clear();
  if (sigsetjmp(g.escape, 1) == 0) {
    for (unsigned z = 0; z < l.grid.z && !g.failed; z++)
      for (unsigned y = 0; y < l.grid.y && !g.failed; y++)
        for (unsigned x = 0; x < l.grid.x && !g.failed; x++) run_group(g, {x, y, z}, unsigned(count));
  }
  current = nullptr;
  sigaltstack(&before, nullptr);
  return g.error;
}

}  // namespace msl
