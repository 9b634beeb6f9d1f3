#include "base/thread_team.h"

#include <system_error>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/check.h"

namespace millrace {
namespace {

constexpr int kSpinRounds = 20000;  // some hundred microseconds of pauses

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Waits until `word` differs from `old`.
template <typename T>
void wait_while_equal(const std::atomic<T>& word, T old, int spin_rounds) {
  for (int i = 0; i < spin_rounds; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    pause();
  }
  while (word.load(std::memory_order_acquire) == old) word.wait(old, std::memory_order_acquire);
}

}  // namespace

bool denormals_are_kept() {
#if defined(__x86_64__)
  constexpr unsigned kFlushToZero = 0x8000;
  constexpr unsigned kDenormalsAreZero = 0x0040;
  return (_mm_getcsr() & (kFlushToZero | kDenormalsAreZero)) == 0;
#else
  volatile float tiny = 1e-40f;
  return tiny * 1.0f != 0.0f;
#endif
}

void ThreadTeam::wait_until_equal(const std::atomic<int32_t>& word, int32_t value) const {
  for (int i = 0; i < spin_rounds_; ++i) {
    if (word.load(std::memory_order_acquire) == value) return;
    pause();
  }
  while (true) {
    const int32_t seen = word.load(std::memory_order_acquire);
    if (seen == value) return;
    word.wait(seen, std::memory_order_acquire);
  }
}

ThreadTeam::ThreadTeam(int num_threads, int available_cores)
    : num_threads_(num_threads), spin_rounds_(num_threads <= available_cores ? kSpinRounds : 0) {
  MR_CHECK(num_threads >= 1);
  MR_CHECK(denormals_are_kept(), "flush-to-zero is on; results would differ between machines");
  threads_.reserve(static_cast<size_t>(num_threads - 1));
  try {
    for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this, i] { worker(i); });
  } catch (...) {
    stop();
    throw;
  }
}

Result<std::unique_ptr<ThreadTeam>> ThreadTeam::create(int num_threads, int available_cores) {
  try {
    return std::make_unique<ThreadTeam>(num_threads, available_cores);
  } catch (const std::system_error& error) {
    return fail("the system does not start {} threads: {}; use fewer (--threads)", num_threads,
                error.code().message());
  }
}

ThreadTeam::~ThreadTeam() { stop(); }

void ThreadTeam::stop() {
  stopping_.store(true, std::memory_order_relaxed);
  region_.fetch_add(1, std::memory_order_release);
  region_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadTeam::run_erased(Erased body, void* context) {
  if (num_threads_ > 1) {
    body_ = body;
    context_ = context;
    running_.store(num_threads_ - 1, std::memory_order_relaxed);
    region_.fetch_add(1, std::memory_order_release);
    region_.notify_all();
  }
  body(context, 0);
  int left = running_.load(std::memory_order_acquire);
  while (left != 0) {
    wait_while_equal(running_, left, spin_rounds_);
    left = running_.load(std::memory_order_acquire);
  }
}

void ThreadTeam::worker(int thread) {
  MR_CHECK(denormals_are_kept(), "flush-to-zero is on; results would differ between machines");
  uint32_t seen = 0;
  while (true) {
    wait_while_equal(region_, seen, spin_rounds_);
    seen = region_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    body_(context_, thread);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_all();
  }
}

}  // namespace millrace
