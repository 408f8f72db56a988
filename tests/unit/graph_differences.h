// Cases of graph_differences_test.cpp: a small graph (graph_small_model.h) for each way to use an operation.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace trifold::graph::lowering {

struct Case {
  std::string name;
  std::string text;
};

// For messages of GoogleTest.
inline void PrintTo(const Case& each, std::ostream* out) { *out << "\n" << each.text; }

// By the files of rules (graph/steps/*.cpp); the last also has rewritten losses.
std::vector<Case> attention_cases();
std::vector<Case> elementwise_cases();
std::vector<Case> movement_cases();
std::vector<Case> product_cases();
std::vector<Case> row_cases();
std::vector<Case> loss_cases();
std::vector<Case> view_cases();
std::vector<Case> decomposed_cases();  // graph/lower/decompose.h

inline std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (auto* const cases : {attention_cases, elementwise_cases, movement_cases, product_cases, row_cases,
                            loss_cases, view_cases, decomposed_cases})
    for (Case& each : cases()) all.push_back(std::move(each));
  return all;
}

}  // namespace trifold::graph::lowering
