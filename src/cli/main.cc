// The `millrace` program: one subcommand per task.
//
// Exit codes: 0 done, 1 an error at work or a bad option value (one line on standard error), 2
// wrong usage (an unknown option, a missing argument), 130 stopped by Ctrl-C.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <new>
#include <sstream>
#include <string>
#include <type_traits>

#include "cli/bench.h"
#include "cli/eval.h"
#include "cli/forward.h"
#include "cli/inspect.h"
#include "cli/output.h"
#include "cli/render.h"
#include "cli/run.h"
#include "cli/tokenize.h"

namespace millrace {
namespace {

constexpr int kErrorExitCode = 1;
constexpr int kUsageExitCode = 2;

int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  std::string command = "millrace";
  for (const CLI::App* chosen : app.get_subcommands()) command += " " + chosen->get_name();
  std::string message = error.what();
  std::replace(message.begin(), message.end(), '\n', ' ');
  const bool extra_words = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (command == "millrace run" && extra_words && message.find(" -") == std::string::npos) {
    message += "; a prompt is given with -p";
  }
  print_error({message + "; see " + command + " --help"});
  const bool bad_value = dynamic_cast<const CLI::ConversionError*>(&error) != nullptr ||
                         dynamic_cast<const CLI::ValidationError*>(&error) != nullptr;
  return bad_value ? kErrorExitCode : kUsageExitCode;
}

// Decimal digits that a T holds, without zeros before them, which the parser would take for octal.
// Returns why `text` is not such a number; empty if it is one.
template <typename T>
std::string take_whole_number(std::string& text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  using Limits = std::numeric_limits<T>;
  if (parsed.ec == std::errc::result_out_of_range) {
    return fmt::format("{} is not between {} and {}", text, Limits::min(), Limits::max());
  }
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    return fmt::format("found \"{}\", expected a whole number{}", text,
                       std::is_signed_v<T> ? "" : " of at least 0");
  }
  text = fmt::format("{}", value);
  return {};
}

// Of every option that is a whole number: the parser alone would let a larger one be the largest,
// and a negative one wrap round.
void take_whole_numbers(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands(nullptr)) {
    for (CLI::Option* option : command->get_options()) {
      const std::string type = option->get_type_name();
      if (type.starts_with("UINT")) {
        option->transform(CLI::Validator(take_whole_number<uint64_t>, ""));
      } else if (type.starts_with("INT")) {
        option->transform(CLI::Validator(take_whole_number<int64_t>, ""));
      }
    }
  }
}

int main_of(int argc, char** argv) {
  CLI::App app("Millrace runs language models on CPUs.", "millrace");
  app.set_version_flag("--version", "millrace " MILLRACE_VERSION);
  app.set_help_all_flag("--help-all", "Print the help of all commands");
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  millrace run smollm2 -p \"What is a millrace?\"\n"
      "  millrace run smollm2\n"
      "  millrace bench smollm2 -p 512 -n 128\n"
      "millrace COMMAND --help tells more. A model is a path (a folder with config.json, or a "
      "GGUF\n"
      "file) or the name of one in the models folder.");
  int exit_code = 0;
  add_run_command(app, exit_code);
  add_bench_command(app, exit_code);
  add_eval_command(app, exit_code);
  add_forward_command(app, exit_code);
  add_inspect_command(app, exit_code);
  add_tokenize_command(app, exit_code);
  add_render_command(app, exit_code);
  take_whole_numbers(app);
  // Also with --help behind it, which would show the help of the program.
  const auto named = [&](const CLI::App* command) { return command->check_name(argv[1]); };
  if (argc > 1 && *argv[1] != '-' && app.get_subcommands(named).empty()) {
    print_error({fmt::format("no command \"{}\"; see millrace --help", argv[1])});
    return kUsageExitCode;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return usage_error(app, error);
    std::ostringstream text;
    app.exit(error, text);  // --help, --version
    if (const auto written = write_stdout(text.str()); !written) {
      print_error(written.error());
      return kErrorExitCode;
    }
  }
  return exit_code;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  // A reader that goes away, or a file as large as files may become (ulimit -f), is an error of the
  // next write, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return millrace::main_of(argc, argv);
  } catch (const std::bad_alloc&) {
    millrace::print_error({"out of memory; try a smaller --max-model-len or --kv-cache-memory"});
  } catch (const std::exception& error) {
    millrace::print_error({error.what()});
  }
  return millrace::kErrorExitCode;
}
