// `millrace run`: one answer, or a chat.
#pragma once

#include <CLI/CLI.hpp>

namespace millrace {

// Adds the subcommand. When it is chosen it runs in the callback and sets `exit_code`.
void add_run_command(CLI::App& app, int& exit_code);

}  // namespace millrace
