// Tensors that transformers ties are compared once in a process, however many ranks open the folder.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "checkpoint/safetensors.h"
#include "models/folders/hugging_face_folder.h"
#include "support/files.h"

namespace trifold::folder_ties {
namespace {

using test::TempDir;
using test::write_file;

constexpr int64_t kVocab = 40000, kWidth = 32, kTokenBytes = kVocab * kWidth * 4;

// A GPT-2 of one layer whose files hold the token embedding twice; `last` is the last element of the second.
void write_model(const TempDir& dir, float last) {
  write_file(dir.file("config.json"), nlohmann::json{{"model_type", "gpt2"},
                                                     {"n_layer", 1},
                                                     {"n_embd", kWidth},
                                                     {"n_head", 2},
                                                     {"n_positions", 8},
                                                     {"vocab_size", kVocab},
                                                     {"tie_word_embeddings", true}}
                                          .dump());
  std::vector<SafeTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    tensors.push_back({name, "F32", std::move(shape)});
  };
  const auto add_layer = [&](const std::string& name, int64_t in, int64_t out) {
    add("transformer.h.0." + name + ".weight", in == 0 ? std::vector{out} : std::vector{in, out});
    add("transformer.h.0." + name + ".bias", {out});
  };
  add("transformer.wte.weight", {kVocab, kWidth});
  add("transformer.wpe.weight", {8, kWidth});
  add_layer("ln_1", 0, kWidth);
  add_layer("attn.c_attn", kWidth, 3 * kWidth);
  add_layer("attn.c_proj", kWidth, kWidth);
  add_layer("ln_2", 0, kWidth);
  add_layer("mlp.c_fc", kWidth, 4 * kWidth);
  add_layer("mlp.c_proj", 4 * kWidth, kWidth);
  add("transformer.ln_f.weight", {kWidth});
  add("transformer.ln_f.bias", {kWidth});
  add("lm_head.weight", {kVocab, kWidth});
  std::filesystem::remove(dir.file("model.safetensors"));
  SafetensorsWriter writer(dir.file("model.safetensors"), tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    int64_t elements = 1;
    for (const int64_t extent : tensors[i].shape) elements *= extent;
    std::vector<float> values(static_cast<size_t>(elements), 0.5F);
    if (i + 1 == tensors.size()) values.back() = last;
    writer.write(i, 0, values.data(), values.size() * sizeof(float));
  }
  writer.finish();
}

// The bytes that this process has read by system calls.
int64_t bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string name;
  int64_t value = 0;
  while (file >> name >> value)
    if (name == "rchar:") return value;
  return -1;
}

TEST(ModelsFolderTies, AreComparedOnce) {
  if (bytes_read() < 0) GTEST_SKIP() << "/proc/self/io cannot be read";
  const TempDir dir;
  write_model(dir, 0.5F);
  const auto read_by = [&] {
    const int64_t before = bytes_read();
    const HuggingFaceFolder folder(dir.path());
    EXPECT_FALSE(folder.model().untie_embeddings_and_output_weights);
    return bytes_read() - before;
  };
  EXPECT_GE(read_by(), 2 * kTokenBytes);
  EXPECT_LT(read_by(), kTokenBytes);
  EXPECT_LT(read_by(), kTokenBytes);
}

TEST(ModelsFolderTies, AreComparedAgainInAnotherFile) {
  const TempDir dir;
  write_model(dir, 0.5F);
  EXPECT_FALSE(HuggingFaceFolder(dir.path()).model().untie_embeddings_and_output_weights);
  write_model(dir, 0.25F);
  EXPECT_TRUE(HuggingFaceFolder(dir.path()).model().untie_embeddings_and_output_weights);
}

}  // namespace
}  // namespace trifold::folder_ties
