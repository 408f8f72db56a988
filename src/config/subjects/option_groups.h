// Groups of options that several commands have. Only the tables of the commands (option_tables.cpp) use them.
#pragma once

#include <cstdint>
#include <string>

#include "config/fields/config.h"
#include "config/fields/recommend_config.h"
#include "config/options/bounds.h"
#include "config/options/option.h"

namespace trifold {

// The two options of a tokenizer; commands differ in the defaults.
Option& add_tokenizer_type(OptionTable& table, Field type);
Option& add_tokenizer_model(OptionTable& table, Field model);
Option& add_end_token(OptionTable& table, Field token);
void add_bad_records(OptionTable& table, Field reaction, Field most);
void add_data(OptionTable& table, DataConfig& data);
void add_documents(OptionTable& table, DataConfig& data);
void add_pairs(OptionTable& table, DataConfig& data);
void add_task(OptionTable& table, FinetuneConfig& config);

// The number of ranks and how each of them computes, for every command that runs on ranks. Starts no group.
void add_ranks(OptionTable& table, MeshConfig& mesh);
void add_host(OptionTable& table, MeshConfig& mesh);
void add_mesh(OptionTable& table, MeshConfig& mesh);
// For commands that train; continues the group of add_mesh.
void add_device_choices(OptionTable& table, MeshConfig& mesh);
void add_zero(OptionTable& table, ZeroConfig& zero);
// --zero-stage alone; starts no group.
Option& add_zero_stage(OptionTable& table, ZeroConfig& zero);
void add_pipeline(OptionTable& table, PipelineConfig& pipeline, MeshConfig& mesh);
void add_recompute(OptionTable& table, MeshConfig& mesh);
void add_memory_limit(OptionTable& table, MeshConfig& mesh);
void add_batch(OptionTable& table, BatchConfig& batch);
// Conditions that end a run before its last step.
void add_exit(OptionTable& table, std::optional<int64_t>& interval, std::optional<double>& minutes);
void add_length(OptionTable& table, BatchConfig& batch, uint64_t& seed);
void add_lr(OptionTable& table, LrConfig& lr);
void add_optimizer(OptionTable& table, OptimizerConfig& optimizer);
// Placement of a recommender's tables; starts no group.
void add_tables(OptionTable& table, EmbeddingPlacementConfig& placement);
// Saving and resuming, for any kind of run; add_checkpoint adds more.
void add_saving(OptionTable& table, CheckpointConfig& checkpoint);
void add_checkpoint(OptionTable& table, CheckpointConfig& checkpoint);
void add_eval(OptionTable& table, EvalConfig& eval);
// Early stopping by evaluations; starts no group.
void add_early_stop(OptionTable& table, std::optional<int64_t>& patience);
// How often and where any kind of run reports; add_log adds more.
void add_reports(OptionTable& table, LogConfig& log);
void add_log(OptionTable& table, LogConfig& log);
void add_seed(OptionTable& table, uint64_t& seed, std::string help);

}  // namespace trifold
