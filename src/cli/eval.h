// `millrace eval`: the share of questions of a file that a model answers rightly.
#pragma once

#include <CLI/CLI.hpp>

namespace millrace {

// Adds the subcommand. When it is chosen it runs in the callback and sets `exit_code`.
void add_eval_command(CLI::App& app, int& exit_code);

}  // namespace millrace
