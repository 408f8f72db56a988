#include "convert/reshard.h"

#include <fmt/core.h>

#include "files/output_files.h"
#include "launch/commands.h"
#include "launch/progress.h"
#include "models/folders/hugging_face_folder.h"

namespace trifold::launch {

int run(const ReshardConfig& config) {
  check_writable_folder("--save", config.save);
  if (is_hugging_face_folder(config.load))
    bad_input(
        "--load {} is a Hugging Face model, which every mesh reads as it is (pretrain --load {}); to reshard it, make a "
        "checkpoint of it first: trifold convert --load {} --save DIR",
        config.load, config.load, config.load);
  CheckpointReader from(config.load);
  const std::string at = reshard(from, config, print_warning).string();
  const CheckpointReader written(at);
  const size_t files = written.manifest().files.size() - 1;  // less view.h5
  fmt::print("{} -> {}: {} tensors in {} file{}\n", from.directory().string(), at, written.tensors().size(),
             files, files == 1 ? "" : "s");
  return kDone;
}

}  // namespace trifold::launch
