// `millrace forward`: logits, greedy continuations and hidden states of given token ids, as
// safetensors; for conformance tests.
#pragma once

#include <CLI/CLI.hpp>

namespace millrace {

// Adds the subcommand. When it is chosen it runs in the callback and sets `exit_code`.
void add_forward_command(CLI::App& app, int& exit_code);

}  // namespace millrace
