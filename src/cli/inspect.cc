#include "cli/inspect.h"

#include <memory>
#include <string>

#include "cli/inspect_report.h"
#include "cli/output.h"
#include "io/model_path.h"

namespace millrace {
namespace {

struct InspectFlags {
  std::string model;
  bool json = false;
};

Result<> run_inspect(const InspectFlags& flags) {
  MR_ASSIGN(const std::string path, resolve_model_path(flags.model, model_search_dirs()));
  MR_ASSIGN(const Checkpoint checkpoint, Checkpoint::open_with_or_without_weights(path));
  MR_ASSIGN(const InspectReport report, inspect(checkpoint));
  // Paths and names in a file need not be UTF-8.
  const std::string text =
      flags.json
          ? to_json(report).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"
          : to_text(report);
  MR_TRY(write_stdout(text));
  if (!report.fault.empty()) return std::unexpected(Error{report.fault});
  return {};
}

}  // namespace

void add_inspect_command(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Print what a model is: sizes, formats, memory for weights and KV cache");
  command->add_option("MODEL", flags->model, "Path or name of a model")->required();
  command->add_flag("--json", flags->json, "Print JSON");
  command->footer(
      "Of a folder config.json is enough; the weights' sizes are then those of its shapes.\n"
      "Examples:\n"
      "  millrace inspect smollm2\n"
      "  millrace inspect ./GLM-5.2 --json");
  command->callback([flags, &exit_code] {
    const Result<> done = run_inspect(*flags);
    if (done) return;
    print_error(done.error());
    exit_code = 1;
  });
}

}  // namespace millrace
