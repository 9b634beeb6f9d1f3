// A team of threads that run one parallel region at a time and wait for each other's results in it.
//
// The caller of run() is thread 0. Waiting: where the team has no more threads than the machine has
// free cores, threads spin for a short time before they sleep; where it has more, they sleep at
// once (spinning threads that share a core cost milliseconds a wait, sleeping ones tens of
// microseconds).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/error.h"

namespace millrace {

// True if denormals are kept (neither flush-to-zero nor denormals-are-zero is on) in this thread.
bool denormals_are_kept();

// Owns num_threads - 1 threads. Not copyable; run() may be called from one thread at a time.
class ThreadTeam {
 public:
  // available_cores decides between spinning and sleeping (see above). Error: the system starts no
  // more threads.
  static Result<std::unique_ptr<ThreadTeam>> create(int num_threads, int available_cores);
  // As create(); throws std::system_error where that returns an error.
  ThreadTeam(int num_threads, int available_cores);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return num_threads_; }

  // Calls body(thread_index) once on every thread of the team; returns when all have returned.
  template <typename Body>
  void run(Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run_erased([](void* context, int thread) { (*static_cast<Plain*>(context))(thread); },
               const_cast<void*>(static_cast<const void*>(&body)));
  }

  // Returns when `word` holds `value`; what was written before it was stored is visible then. Who
  // stores the value calls word.notify_all().
  void wait_until_equal(const std::atomic<int32_t>& word, int32_t value) const;

 private:
  using Erased = void (*)(void*, int);
  void run_erased(Erased body, void* context);
  void stop();
  void worker(int thread);

  const int num_threads_;
  const int spin_rounds_;
  Erased body_ = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<uint32_t> region_{0};
  alignas(64) std::atomic<int> running_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

}  // namespace millrace
