// `millrace inspect MODEL`: what a checkpoint holds and what it takes in memory. Reads headers
// only; a config.json alone is told what it tells. Exit code 1 if the model could not be loaded as
// it is.
#pragma once

#include <CLI/CLI.hpp>

namespace millrace {

// Adds the subcommand. When it is chosen it runs in the callback and sets `exit_code`.
void add_inspect_command(CLI::App& app, int& exit_code);

}  // namespace millrace
