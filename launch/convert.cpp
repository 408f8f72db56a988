#include "convert/convert.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "checkpoint/safetensors.h"
#include "config/commands/json.h"
#include "config/subjects/model_family.h"
#include "convert/export_onnx.h"
#include "convert/export_state_dict.h"
#include "convert/export_tensors.h"
#include "core/error.h"
#include "core/read_json.h"
#include "core/suffix.h"
#include "files/output_files.h"
#include "launch/commands.h"
#include "launch/progress.h"
#include "models/adapters/frozen_weights.h"
#include "models/adapters/peft_folder.h"
#include "models/folders/open_model.h"
#include "models/hugging_face/hugging_face.h"
#include "recommend/trained_recommender.h"
#include "train/start/checkpoint_model.h"

namespace trifold::launch {

namespace {

// The options that describe this model: all that differ from their defaults.
std::string model_options(const ModelConfig& model) {
  const nlohmann::json all = to_json(model);
  const nlohmann::json usual = to_json(ModelConfig());
  std::string text;
  for (const auto& item : all.items()) {
    if (item.value() == usual[item.key()]) continue;
    std::string name = item.key();
    std::replace(name.begin(), name.end(), '_', '-');
    text += " --" + name;
    if (item.value().is_string())
      text += " " + item.value().get<std::string>();
    else if (item.value().is_array())
      for (const nlohmann::json& word : item.value()) text += " " + word.get<std::string>();
    else if (!item.value().is_boolean())
      text += " " + json_text(item.value());
  }
  return text;
}

// Whether a checkpoint has a model from a file.
bool has_model_file(const CheckpointReader& checkpoint) {
  const nlohmann::json& model = checkpoint.meta().model;
  return model.is_object() && model.contains("model") && model["model"].is_string();
}

void print_result(const Converted& done) {
  fmt::print("{} -> {}: {} tensors, {:.1f} MB, {} safetensors file{}\n", done.from, done.to, done.tensors,
             static_cast<double>(done.bytes) / 1e6, done.files, done.files == 1 ? "" : "s");
}

}  // namespace

int run(const ConvertConfig& config) {
  const bool from_hugging_face = !is_peft_folder(config.load) && is_hugging_face_folder(config.load);
  std::optional<CheckpointReader> checkpoint;
  const bool from_peft = is_peft_folder(config.load);
  if (!from_hugging_face) checkpoint.emplace(open_model(config.load));
  if (config.load_ema && (!checkpoint || is_recommender(*checkpoint)))
    bad_input("--load-ema: {} is not a checkpoint of a language model: leave it out", config.load);
  if (config.load_ema) checkpoint = checkpoint->with_averages();
  if (config.hugging_face_family &&
      (!checkpoint || is_recommender(*checkpoint) || has_model_file(*checkpoint)))
    bad_input("--hugging-face-family: {} is not a checkpoint of a GPT or BERT: leave it out", config.load);
  if (checkpoint && is_recommender(*checkpoint) && has_suffix(config.save, ".safetensors")) {
    const ExportedTensors done = export_tensors(*checkpoint, config);
    fmt::print("{} -> {}: {} tensors, {} of {} rows of tables, {:.1f} MB, safetensors\n", done.from, done.to,
               done.tensors, done.rows, done.all_rows, static_cast<double>(done.bytes) / 1e6);
    return kDone;
  }
  if (checkpoint && is_recommender(*checkpoint)) {
    const ExportedOnnx done = export_onnx(*checkpoint, config);
    fmt::print("{} -> {}: {} tables, {:.1f} MB, ONNX\n", done.from, done.to, done.tables,
               static_cast<double>(done.bytes) / 1e6);
    return kDone;
  }
  if (config.changed_since || config.names != WeightNames::Trifold)
    bad_input("--{}: {} is not a checkpoint of a recommender: leave it out",
              config.changed_since ? "changed-since" : "names", config.load);
  for (const char* ending : {".onnx", ".safetensors"})
    if (config.save.ends_with(ending))
      bad_input("--save {}: only a recommender becomes a file, and {} is a language model: name a folder",
                config.save, config.load);
  check_writable_folder("--save", config.save);
  const bool has_adapters =
      checkpoint && !has_model_file(*checkpoint) && language_model_of(*checkpoint).adapters.lora_rank;
  if (config.merge_adapters && !has_adapters)
    bad_input("--merge-adapters: {} has no low-rank adapters: leave it out", config.load);
  if (has_adapters && !config.merge_adapters) {
    print_result(from_peft ? import_adapters(config) : export_adapters(*checkpoint, config));
    const BaseWeights held = language_model_of(*checkpoint).adapters.quantize_base;
    if (!from_peft && held != BaseWeights::AsRun)
      print_warning(fmt::format(
          "the adapters were trained on frozen weights in {}, but their folder names the weights before that: "
          "with these they compute something else; --merge-adapters writes the model that was trained",
          name_of(held)));
    return kDone;
  }
  if (has_adapters) checkpoint = merged(std::move(*checkpoint));
  if (checkpoint && has_model_file(*checkpoint)) {
    if (config.seq_length)
      bad_input("--seq-length: {} is not a Hugging Face model: leave it out", config.load);
    const Converted done = export_state_dict(*checkpoint, config);
    print_result(done);
    if (done.files == 1)
      fmt::print("It opens with module.load_state_dict(safetensors.torch.load_file(\"{}/{}\")).\n",
                 config.save, kSafetensorsName);
    return kDone;
  }
  if (checkpoint) {
    CheckpointReader& from = *checkpoint;
    const Converted done = export_model(from, config);
    print_result(done);
    fmt::print("It opens with transformers.AutoModelFor{}.from_pretrained(\"{}\"); {}.\n",
               auto_class(done.model, *done.family), done.to,
               done.has_tokenizer_files ? "the files of its tokenizer are next to it"
                                        : "the tokenizer is not in it");
    return kDone;
  }
  const Converted done = import_model(config, print_warning);
  print_result(done);
  if (done.has_tokenizer_files && done.data.tokenizer_model)
    fmt::print("Its tokenizer was kept: generate and evaluate find it, {}\n", *done.data.tokenizer_model);
  if (!done.tokenizer_problem.empty())
    fmt::print("Its tokenizer was kept, but cannot be used here: {}\n", done.tokenizer_problem);
  if (has_task_head(done.model)) {
    fmt::print("To evaluate it or tune it further:\n  trifold finetune --task {} --load {} ...\n",
               done.model.bert_head == HeadKind::Span ? "squad" : "classify", config.save);
    return kDone;
  }
  const DataConfig& data = done.data;
  const bool bytes = data.tokenizer_type == TokenizerType::Byte;
  if (!data.tokenizer_model && !bytes)
    fmt::print(
        "The folder has no tokenizer to use: add the model's own, --tokenizer-type and --tokenizer-model{}\n",
        done.model.vocab_size.value_or(0) <= 257 ? ", or --tokenizer-type byte if its tokens are bytes" : "");
  const std::string tokenizer =
      data.tokenizer_model ? fmt::format(" --tokenizer-type {} --tokenizer-model {}",
                                         name_of(data.tokenizer_type.value_or(TokenizerType::HuggingFace)),
                                         *data.tokenizer_model)
      : bytes              ? " --tokenizer-type byte"
                           : "";
  fmt::print(
      "To train it further (with your own --micro-batch-size, --train-iters and --lr, and the --data-path of "
      "a text{}):\n"
      "  trifold pretrain --load {} --finetune{}{}\n",
      family_of_model(done.model).reads_token_files ? ", or of a .bin/.idx data set that its tokenizer made"
                                                    : "",
      config.save, tokenizer, model_options(done.model));
  return kDone;
}

}  // namespace trifold::launch
