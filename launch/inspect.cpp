#include "checkpoint/inspect.h"

#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "checkpoint/reader.h"
#include "config/commands/commands.h"
#include "config/commands/json.h"
#include "core/error.h"
#include "core/printable.h"
#include "graph/describe.h"
#include "graph/model_file.h"
#include "graph/pt2/archive.h"
#include "graph/pt2/read_pt2.h"
#include "launch/block_lines.h"
#include "launch/commands.h"
#include "launch/progress.h"
#include "models/folders/describe_folder.h"
#include "models/folders/open_model.h"
#include "plan/model_costs.h"
#include "run/flight/flight_verdict.h"
#include "train/pretrain.h"

namespace trifold::launch {

namespace {

constexpr std::string_view kGraphEnding = ".pt2";

// What prevents training, or else what it costs.
std::string training_text(const std::string& path, const graph::Archive& archive, const graph::Graph& graph) {
  const std::vector<std::string> problems = graph::training_problems(archive, graph);
  if (!problems.empty()) return graph::refusal_text(problems) + "\n";
  PlanConfig plan;
  plan.run.model.model = path;
  plan.run.batch.micro_batch_size = 1;
  PretrainConfig run = resolve(plan).run;
  resolve_vocabulary(run.model, run.data);
  return block_lines(graph::open_model_file(path)->lowered(), model_costs(run_spec(run)));
}

// A model that torch.export.save wrote.
int run_graph(const InspectConfig& config) {
  if (config.diff) bad_input("--diff compares checkpoints; {} is a graph of PyTorch", config.directory);
  const graph::Archive archive(config.directory);
  const graph::Pt2Model model =
      graph::read_pt2(archive.model_text(), archive.model_where(), archive.tensors());
  const std::string text = fmt::format(
      "{}: a model exported by PyTorch {} (schema {}), {} nodes\n"
      "trifold pretrain --model FILE --arrays NAME=PATH ... trains it on arrays for its inputs (docs/own_models.md).\n\n{}{}",
      config.directory, model.torch_version, model.schema_version, model.file_nodes,
      graph::describe(model.graph), training_text(config.directory, archive, model.graph));
  fmt::print("{}", printable_message(text));
  if (config.verify) {
    archive.verify();
    fmt::print("\nevery byte has the checksum of the archive\n");
  }
  return kDone;
}

// A folder of transformers.
int run_folder(const InspectConfig& config) {
  if (config.verify)
    bad_input(
        "--verify: {} is a Hugging Face model, whose files have no checksums: leave it out, or compare it by --diff",
        config.directory);
  const auto folder = std::make_shared<const HuggingFaceFolder>(config.directory, print_warning);
  fmt::print("{}",
             printable_message(describe(*folder) +
                               "\nTo train it: trifold pretrain --load FOLDER; to make a checkpoint of it: "
                               "trifold convert --load FOLDER --save DIR\n"));
  return kDone;
}

}  // namespace

int run(const InspectConfig& config) {
  if (config.flight) {
    fmt::print("{}", printable_message(flight_report(read_flight_files(*config.flight))));
    return kDone;
  }
  if (config.directory.ends_with(kGraphEnding) && !std::filesystem::is_directory(config.directory))
    return run_graph(config);
  const bool is_folder = is_hugging_face_folder(config.directory);
  if (is_folder && (!config.diff || config.verify)) return run_folder(config);
  CheckpointReader checkpoint = open_model(config.directory);
  if (!config.diff) fmt::print("{}", printable_message(describe(checkpoint, to_json(ModelConfig{}))));
  bool sound = true;
  if (config.verify) {
    const VerifyReport report = checkpoint.verify();
    fmt::print("{}{}", config.diff ? "" : "\n", printable_message(to_text(report)));
    sound = report.ok();
  }
  if (config.diff) {
    CheckpointReader other = open_model(*config.diff);
    fmt::print("{}", printable_message(to_text(difference(checkpoint, other))));
  }
  return sound ? kDone : kFailed;
}

}  // namespace trifold::launch
