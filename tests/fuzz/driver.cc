// Runs a fuzz target without libFuzzer: every file of the corpus as it is, every prefix of it, then
// mutations until the time is over. The same seed gives the same inputs.
//
// usage: fuzz_KIND CORPUS [--seconds N] [--seed N]
// CORPUS: a folder, or one file (to repeat a failure). An input that crashes is kept as
// fuzz-failure.bin in the working folder. Default time: MILLRACE_FUZZ_SECONDS, or 2.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/env.h"
#include "fuzz_check.h"
#include "mutator.h"

namespace millrace::fuzz {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kArena = size_t{1} << 20;
constexpr rlim_t kMaxMemory = rlim_t{4} << 30;
// No parser may take longer for one input.
constexpr unsigned kMaxSecondsPerInput = 10;

// Holds an input so that it ends where an unreadable page begins.
class GuardedInput {
 public:
  GuardedInput() {
    void* memory =
        mmap(nullptr, kArena + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    arena_ = static_cast<uint8_t*>(memory);
    if (mprotect(arena_ + kArena, kPage, PROT_NONE) != 0) std::abort();
  }
  // The copy's address; inputs larger than the arena are cut.
  void set(const Bytes& bytes) {
    size_ = std::min(bytes.size(), kArena);
    data_ = arena_ + kArena - size_;
    if (size_ > 0) std::memcpy(data_, bytes.data(), size_);
  }
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  uint8_t* arena_ = nullptr;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// What the signal handler saves.
GuardedInput* current_input = nullptr;

void save_and_die(int signal) {
  const int fd = open("fuzz-failure.bin", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd >= 0) {
    [[maybe_unused]] const auto written = write(fd, current_input->data(), current_input->size());
    close(fd);
  }
  constexpr char kMessage[] = "fuzz: the input is kept in fuzz-failure.bin\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  std::signal(signal, SIG_DFL);
  raise(signal);
}

void catch_failures() {
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGALRM}) {
    std::signal(signal, save_and_die);
  }
}

void limit_memory() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // An absurd allocation then throws, and so fails the run. Sanitizers reserve more than any limit.
  const rlimit limit{kMaxMemory, kMaxMemory};
  setrlimit(RLIMIT_AS, &limit);
#endif
}

void run_one(GuardedInput& input, const Bytes& bytes) {
  input.set(bytes);
  alarm(kMaxSecondsPerInput);
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

std::vector<Bytes> read_corpus(const std::string& path) {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(path)) {
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      files.push_back(entry.path());
    }
    std::ranges::sort(files);
  } else {
    files.emplace_back(path);
  }
  std::vector<Bytes> corpus;
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    if (in)
      corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return corpus;
}

int usage() {
  std::fputs("usage: fuzz_KIND CORPUS [--seconds N] [--seed N]\n", stderr);
  return 2;
}

int run(int argc, char** argv) {
  if (argc < 2 || argc % 2 != 0) return usage();
  double seconds = std::atof(env::fuzz_seconds().value_or("2").c_str());
  uint64_t seed = 1;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--seconds") == 0) {
      seconds = std::atof(argv[i + 1]);
    } else if (std::strcmp(argv[i], "--seed") == 0) {
      seed = std::strtoull(argv[i + 1], nullptr, 10);
    } else {
      return usage();
    }
  }
  const std::vector<Bytes> corpus = read_corpus(argv[1]);
  if (corpus.empty()) {
    std::fprintf(stderr, "fuzz: no corpus at %s\n", argv[1]);
    return 2;
  }
  GuardedInput input;
  current_input = &input;
  catch_failures();
  limit_memory();
  uint64_t inputs = 0;
  for (const Bytes& whole : corpus) {
    for (size_t length = 0; length <= whole.size(); ++length, ++inputs) {
      run_one(input, Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)));
    }
  }
  Random random(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < 100; ++i, ++inputs) run_one(input, mutate(corpus, random));
  }
  std::printf("fuzz: %llu inputs, no failure\n", static_cast<unsigned long long>(inputs));
  return 0;
}

}  // namespace
}  // namespace millrace::fuzz

int main(int argc, char** argv) { return millrace::fuzz::run(argc, argv); }
