// Every layer against central finite differences in f64, on one rank and cut over two, with and without
// sequence parallelism. The list of layers is compared with the sources, so that a layer without a check fails the
// test.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "parity/gradient_cases.h"
#include "support/ranks.h"

namespace trifold::test {
namespace {

constexpr MeshCase kMeshes[] = {{"OneRank", 1, false},
                                {"Tp2", 2, false},
                                {"Tp2Sequence", 2, true},
                                {"Tp2Experts", 2, true, 2},
                                {"Tp2PartsOfExperts", 2, true, 1, 2}};

std::vector<GradientCase> cases() {
  std::vector<GradientCase> all;
  for (const auto& list : {layer_gradient_cases, attention_gradient_cases, block_gradient_cases,
                           end_gradient_cases, expert_gradient_cases})
    for (GradientCase& one : list()) all.push_back(std::move(one));
  return all;
}

class EveryLayer : public ::testing::TestWithParam<std::tuple<size_t, MeshCase>> {};

TEST_P(EveryLayer, AgreesWithFiniteDifferences) {
  const GradientCase c = cases()[std::get<0>(GetParam())];
  const MeshCase& mesh = std::get<1>(GetParam());
  if (c.experts ? mesh.tp > 1 && !mesh.sequence_parallel : mesh.sharing * mesh.parts > 1) return;
  run_ranks(mesh.tp, [&](Communicator& world) { GradientCheck(c, mesh, world).run(); });
}

INSTANTIATE_TEST_SUITE_P(Gradients, EveryLayer,
                         ::testing::Combine(::testing::Range(size_t{0}, cases().size()),
                                            ::testing::ValuesIn(kMeshes)),
                         [](const auto& test) {
                           const size_t index = std::get<0>(test.param);
                           return cases()[index].layer + std::to_string(index) + std::get<1>(test.param).name;
                         });

TEST(Gradients, NoLayerIsForgotten) {
  std::set<std::string> checked;
  for (const GradientCase& c : cases()) checked.insert(c.layer);
  const std::regex declaration(R"(class (\w+)( final)? : public (Layer|HeadProjections)\b)");
  const std::set<std::string> interfaces{"HeadProjections"};
  checked.insert("GraphBlock");  // unit/graph_lower_test.cpp compares all its operations with PyTorch
  int found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(TRIFOLD_SOURCE)) {
    if (entry.path().extension() != ".h") continue;
    std::ifstream file(entry.path());
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    for (std::sregex_iterator it(text.begin(), text.end(), declaration), end; it != end; ++it, ++found)
      EXPECT_TRUE(checked.contains((*it)[1]) || interfaces.contains((*it)[1]))
          << (*it)[1] << " in " << entry.path() << " is not checked here";
  }
  EXPECT_GE(found, 10);
}

}  // namespace
}  // namespace trifold::test
