// The candidate values of each axis of the search space (search_axes.h), given the values of the earlier axes.
#pragma once

#include <cstdint>
#include <vector>

#include "config/commands/search_axes.h"

namespace trifold {

// The value of the exchange axis without context ranks: there is nothing to exchange.
inline constexpr int64_t kNoExchange = -1;

std::vector<int64_t> tensor_candidates(const SearchJob& job, const Layout& before);
std::vector<int64_t> context_candidates(const SearchJob& job, const Layout& before);
std::vector<int64_t> exchange_candidates(const SearchJob& job, const Layout& before);
std::vector<int64_t> pipeline_candidates(const SearchJob& job, const Layout& before);
std::vector<int64_t> expert_candidates(const SearchJob& job, const Layout& before);
std::vector<int64_t> expert_tensor_candidates(const SearchJob& job, const Layout& before);
std::vector<int64_t> head_parts_candidates(const SearchJob& job, const Layout& before);
std::vector<int64_t> schedule_candidates(const SearchJob& job, const Layout& before);
std::vector<int64_t> stages_candidates(const SearchJob& job, const Layout& before);
std::vector<int64_t> micro_batch_candidates(const SearchJob& job, const Layout& before);
std::vector<int64_t> sequence_parallel_candidates(const SearchJob& job, const Layout& before);
std::vector<int64_t> zero_candidates(const SearchJob& job, const Layout& before);
std::vector<int64_t> recompute_candidates(const SearchJob& job, const Layout& before);

}  // namespace trifold
