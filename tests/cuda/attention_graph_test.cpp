// cuDNN accepts the attention graphs for an H200 that is only described, without a GPU. Its engines compile (NVRTC) up
// to the point where the result would be loaded into the driver. Checking the graphs' results needs a GPU
// (tests/gpu.sh).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/error.h"
#include "ops/cuda/attention_choice.h"
#include "ops/cuda/attention_graphs.cuh"
#include "ops/cuda/workspace.h"
#include "support/test_data.h"

namespace trifold::cuda {
namespace {

Descriptor device_of(const std::string& card) {
  std::ifstream file(std::filesystem::path(test::test_data()) / "data" / (card + "_device.json"));
  return described_device({std::istreambuf_iterator<char>(file), {}});
}

bool taken(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS || status == CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER;
}

// Every engine that cuDNN proposes, and at least one, must take the graph.
std::vector<Verdict> expect_taken(const Graph& graph, const std::string& what) {
  const Descriptor device = device_of("h200");
  const auto verdicts = try_engines(graph, {nullptr, &device},
                                    [](Descriptor& /*plan*/, cudnnStatus_t /*status*/) { return true; });
  EXPECT_GE(verdicts.size(), 1U) << what;
  for (const Verdict& verdict : verdicts)
    EXPECT_TRUE(taken(verdict.status)) << what << ": " << verdict.message;
  return verdicts;
}

struct Case {
  const char* name;
  AttentionShape shape;
};

AttentionShape with_documents(AttentionShape shape) {
  shape.documents = true;
  return shape;
}

// A block of context parallelism: `seq` queries and `keys` keys of longer runs, `given` of whose key heads are in the call.
AttentionShape block(AttentionShape shape, int64_t keys, int64_t query_rows, int64_t key_rows,
                     int64_t given = 0) {
  if (shape.all_heads == 0) {
    shape.all_heads = shape.heads;
    shape.all_kv_heads = shape.kv_heads;
  }
  shape.keys = keys;
  shape.query_rows = query_rows;
  shape.key_rows = key_rows;
  shape.given_heads = given > 0 ? given : shape.kv_heads;
  return shape;
}

// What a plan counts.
size_t counted_workspace(const AttentionShape& shape) {
  return cudnn_backward_workspace({.batch = shape.batch,
                                   .seq = shape.seq,
                                   .heads = shape.heads,
                                   .kv_heads = shape.kv_heads,
                                   .width = shape.width,
                                   .lengths = shape.lengths,
                                   .deterministic = shape.deterministic,
                                   .keys = shape.keys});
}

class AttentionGraphs : public ::testing::TestWithParam<Case> {};

TEST_P(AttentionGraphs, ForwardIsTaken) {
  expect_taken(attention_forward_graph(GetParam().shape), GetParam().name);
}

// In any order. What a plan counts is enough for any engine.
TEST_P(AttentionGraphs, BackwardIsTaken) {
  AttentionShape shape = GetParam().shape;
  shape.deterministic = false;
  const size_t counted = counted_workspace(shape);
  for (const Verdict& verdict : expect_taken(attention_backward_graph(shape), GetParam().name))
    EXPECT_LE(verdict.workspace.value_or(0), static_cast<int64_t>(counted)) << GetParam().name;
}

// As it is used. What a plan counts is enough for any engine that may be chosen, and what one of them asks
// for.
TEST_P(AttentionGraphs, DeterministicBackwardIsTakenWithAKnownWorkspace) {
  AttentionShape shape = GetParam().shape;
  shape.deterministic = true;
  int64_t most = 0;
  for (const Verdict& verdict : expect_taken(attention_backward_graph(shape), GetParam().name)) {
    if (!verdict.workspace) GTEST_SKIP() << "this cuDNN does not say what its engines take";
    most = std::max(most, *verdict.workspace);
  }
  const size_t counted = counted_workspace(shape);
  EXPECT_GE(counted, static_cast<size_t>(most));
  if (cudnn_version() / 100 == 919) {
    EXPECT_EQ(counted, static_cast<size_t>(most)) << "it was written down for 9.19";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, AttentionGraphs,
    ::testing::Values(
        Case{"Gpt124m", {8, 1024, 12, 12, 64, DType::BF16, true}},
        Case{"Llama8b", {2, 4096, 32, 8, 128, DType::BF16, true}},
        Case{"Gpt124mDropout", {8, 1024, 12, 12, 64, DType::BF16, true, false, 0.1}},
        Case{"Llama8bDropout", {2, 4096, 32, 8, 128, DType::BF16, true, false, 0.25}},
        Case{"BertLarge", {32, 512, 16, 16, 64, DType::BF16, false, false, 0.1, true}},
        Case{"BertBaseShort", {32, 128, 12, 12, 64, DType::F16, false, false, 0, true}},
        Case{"CausalWithLengths", {2, 200, 8, 2, 128, DType::BF16, true, false, 0.1, true}},
        Case{"NoWholeTile", {3, 72, 4, 2, 32, DType::BF16, true}},
        Case{"Wide", {2, 1024, 4, 2, 256, DType::BF16, true}},
        Case{"Small", {2, 2048, 16, 16, 96, DType::BF16, true}},
        Case{"TwoHeadsOfSixteen", {1, 4096, 2, 2, 64, DType::BF16, true, false, 0.1, false, 16, 16}},
        Case{"OneKeyHeadOfEight", {1, 4096, 4, 1, 128, DType::BF16, true, false, 0, false, 32, 8}},
        Case{"Documents", with_documents({2, 4096, 32, 8, 128, DType::BF16, true})},
        Case{"WideDocuments", with_documents({2, 1000, 4, 2, 256, DType::BF16, true})},
        Case{"EarlierBlock", block({2, 512, 8, 2, 128, DType::BF16, false}, 512, 1024, 1024)},
        Case{"LongEarlierBlock", block({1, 512, 4, 4, 64, DType::BF16, false}, 3584, 1024, 4096)},
        Case{"DiagonalBlock", block({2, 512, 8, 2, 128, DType::BF16, true}, 512, 1024, 1024)},
        Case{"BlockOfSomeHeads",
             block({1, 512, 4, 1, 64, DType::F16, false, false, 0, false, 16, 4}, 1024, 1024, 4096, 2)},
        Case{"DocumentsWithoutWholeTile", with_documents({3, 72, 4, 4, 64, DType::F16, true})}),
    [](const auto& each) { return std::string(each.param.name); });

// The first engine that cuDNN proposes for a card, of those it has for the graph.
std::vector<Verdict> first_engine(const Graph& graph, const std::string& card) {
  const Descriptor device = device_of(card);
  return try_engines(graph, {nullptr, &device},
                     [](Descriptor& /*plan*/, cudnnStatus_t status) { return !taken(status); });
}

// Of other generations: what attention_choice.h leaves to cuDNN has an engine there, and what it keeps from
// it has none that goes backward.
TEST(AttentionGraph, OtherCardsTakeTheirOwnChoices) {
  const AttentionShape kGpt{2, 512, 4, 2, 64, DType::BF16, true, true};
  const AttentionShape kWide{2, 512, 4, 2, 136, DType::BF16, true, true};
  const AttentionShape kBert{32, 512, 16, 16, 64, DType::BF16, false, true, 0, true};
  const AttentionShape kPacked = with_documents(kGpt);
  const AttentionShape kBlock = block({2, 512, 4, 2, 64, DType::BF16, false, true}, 1024, 1024, 2048);
  const AttentionShape kDiagonal = block(kGpt, 512, 1024, 1024);
  for (const auto& [card, major] : {std::pair("a100", 8), std::pair("b200", 10)})
    for (AttentionShape shape : {kGpt, kWide, kBert, kPacked, kBlock, kDiagonal})
      for (const double dropout : {0.0, 0.1}) {
        if ((shape.documents || shape.keys > 0) && dropout > 0) continue;  // is_for_cudnn
        SCOPED_TRACE(fmt::format("{}, {} heads of {}, lengths {}, documents {}, dropout {}", card,
                                 shape.heads, shape.width, shape.lengths, shape.documents, dropout));
        shape.dropout = dropout;
        Attention how;
        how.head_dim = shape.width;
        how.dropout.probability = dropout;
        int32_t first = 0;
        if (shape.documents) how.first_keys = {&first, DType::I32, {1, 1}};
        const auto backward = first_engine(attention_backward_graph(shape), card);
        if (is_missing_in_cudnn(how, major)) {
          // A later version may have learned it.
          if (cudnn_version() / 100 == 919) {
            EXPECT_EQ(backward.size(), 0U);
          }
          continue;
        }
        const auto forward = first_engine(attention_forward_graph(shape), card);
        ASSERT_FALSE(forward.empty() || backward.empty());
        EXPECT_TRUE(taken(forward.back().status)) << forward.back().message;
        EXPECT_TRUE(taken(backward.back().status)) << backward.back().message;
        EXPECT_LE(backward.back().workspace.value_or(0), static_cast<int64_t>(counted_workspace(shape)));
      }
}

// What cuDNN's heuristics choose for models of today, as a table: the first engine that they propose, which
// is the one that is taken. The work space that plans count is enough for it.
TEST(AttentionGraph, EnginesAndWorkspacesOnDescribedCards) {
  const std::vector<Case> kModels{{"GPT-2 1558M", {16, 1024, 25, 25, 64, DType::BF16, true}},
                                  {"Llama 8B", {1, 8192, 32, 8, 128, DType::BF16, true}},
                                  {"Llama 70B, a rank of 8", {1, 8192, 8, 1, 128, DType::BF16, true}}};
  for (const auto& [name, model] : kModels)
    for (const char* card : {"h100", "h200", "b200"})
      for (const char* what : {"forward", "backward", "backward, deterministic"}) {
        AttentionShape shape = model;
        shape.deterministic = std::string(what).ends_with("deterministic");
        const Graph graph = what[0] == 'f' ? attention_forward_graph(shape) : attention_backward_graph(shape);
        const auto verdicts = first_engine(graph, card);
        ASSERT_FALSE(verdicts.empty()) << name << " " << card << " " << what;
        const Verdict& last = verdicts.back();
        EXPECT_TRUE(taken(last.status)) << name << " " << card << " " << what << ": " << last.message;
        fmt::print("{:22} {} {:23} engine {}, number {} of its list, {:10} bytes\n", name, card, what,
                   last.engine.value_or(-1), verdicts.size(), last.workspace.value_or(-1));
        EXPECT_LE(last.workspace.value_or(0),
                  static_cast<int64_t>(cudnn_backward_workspace(
                      {shape.batch, shape.seq, shape.heads, shape.kv_heads, shape.width})))
            << name << " " << card << " " << what;
      }
}

// Graphs that no engine supports are rejected by name, so the tests above can fail.
TEST(AttentionGraph, HeadsOfOddWidthAreRefused) {
  const Descriptor device = device_of("h200");
  const Graph graph = attention_forward_graph({1, 128, 2, 2, 63, DType::BF16, true});
  try {
    const Plan plan(graph, {nullptr, &device}, "attention");
    FAIL() << "a plan was made";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("cuDNN"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace trifold::cuda
