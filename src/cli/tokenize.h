// `millrace tokenize`: shows how a tokenizer reads text.
#pragma once

#include <CLI/CLI.hpp>

namespace millrace {

// Adds the command. When it runs it sets `exit_code`, which must outlive `app`.
void add_tokenize_command(CLI::App& app, int& exit_code);

}  // namespace millrace
