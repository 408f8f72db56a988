// ClassReports: what a block with a cross entropy of classes reports in an evaluation (nn/reports.h): how many labels
// count, and how many of them are the likeliest class, or among the K likeliest.
#pragma once

#include <cstdint>

namespace trifold {

struct ClassReports {
  // A counter of this name with the name of the cross entropy after it, f64 [kNumbers]: the labels that count, the labels
  // that are the likeliest class, and the labels among the K likeliest classes. Of classes with equal scores each has an
  // equal share of their places, so that a model that tells none apart is right as often as chance.
  static constexpr const char* kCounter = "classes of ";
  static constexpr int64_t kNumbers = 3;
  // A batch value: K.
  static constexpr const char* kTopK = "top_k";
};

}  // namespace trifold
