#include "cli/interrupt.h"

#include <unistd.h>

namespace millrace {
namespace {

// A signal handler can reach nothing but a global.
volatile std::sig_atomic_t interrupt_flag = 0;

void on_interrupt(int) {
  if (interrupt_flag) _exit(130);
  interrupt_flag = 1;
}

}  // namespace

InterruptScope::InterruptScope() {
  interrupt_flag = 0;
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &before_);
}

InterruptScope::~InterruptScope() { sigaction(SIGINT, &before_, nullptr); }

bool InterruptScope::interrupted() { return interrupt_flag != 0; }

void InterruptScope::clear() { interrupt_flag = 0; }

}  // namespace millrace
