// Asking the caches for memory that is needed soon. The address may be any, mapped or not.
//
// Written as instructions: GCC takes a function that does nothing but __builtin_prefetch for one
// without effect, and drops the calls.
#pragma once

namespace millrace {

#if defined(__x86_64__)

// Into all levels.
[[gnu::always_inline]] inline void prefetch_level1(const void* p) {
  asm volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(p)));
}
// Into the second level and those behind it.
[[gnu::always_inline]] inline void prefetch_level2(const void* p) {
  asm volatile("prefetcht1 %0" : : "m"(*static_cast<const char*>(p)));
}
// Into the first level, to be written.
[[gnu::always_inline]] inline void prefetch_to_write(const void* p) {
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(p)));
}

#else

[[gnu::always_inline]] inline void prefetch_level1(const void* p) { __builtin_prefetch(p, 0, 3); }
[[gnu::always_inline]] inline void prefetch_level2(const void* p) { __builtin_prefetch(p, 0, 2); }
[[gnu::always_inline]] inline void prefetch_to_write(const void* p) { __builtin_prefetch(p, 1, 3); }

#endif

}  // namespace millrace
