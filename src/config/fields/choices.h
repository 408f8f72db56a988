// The enums in configurations, with the names of their values on the command line.
#pragma once

#include "config/fields/named.h"
#include "core/choices.h"
#include "core/dtype.h"

namespace trifold {

// The types to which a checkpoint can be converted.
template <>
struct Names<DType> {
  static constexpr Named<DType> kAll[] = {
      {DType::F32, "f32"}, {DType::F64, "f64"}, {DType::BF16, "bf16"}, {DType::F16, "f16"}};
};

// ---- Models ----

enum class ModelType { Gpt, Bert, Graph };
template <>
struct Names<ModelType> {
  static constexpr Named<ModelType> kAll[] = {
      {ModelType::Gpt, "gpt"}, {ModelType::Bert, "bert"}, {ModelType::Graph, "graph"}};
};

enum class PositionEmbedding { LearnedAbsolute, Rope, None };
template <>
struct Names<PositionEmbedding> {
  static constexpr Named<PositionEmbedding> kAll[] = {
      {PositionEmbedding::LearnedAbsolute, "learned_absolute"},
      {PositionEmbedding::Rope, "rope"},
      {PositionEmbedding::None, "none"}};
};

enum class SoftmaxType { Vanilla, Learnable };
template <>
struct Names<SoftmaxType> {
  static constexpr Named<SoftmaxType> kAll[] = {{SoftmaxType::Vanilla, "vanilla"},
                                                {SoftmaxType::Learnable, "learnable"}};
};

enum class RopeType { Rope, Yarn, LongRope };
template <>
struct Names<RopeType> {
  static constexpr Named<RopeType> kAll[] = {
      {RopeType::Rope, "rope"}, {RopeType::Yarn, "yarn"}, {RopeType::LongRope, "longrope"}};
};

// The norms of a transformer layer's two parts, and whether the parts read the same input (models/transformer.h).
enum class NormPosition { Input, Output, Both };
template <>
struct Names<NormPosition> {
  static constexpr Named<NormPosition> kAll[] = {
      {NormPosition::Input, "input"}, {NormPosition::Output, "output"}, {NormPosition::Both, "both"}};
};
enum class ParallelResidual { None, TwoNorms, OneNorm };
template <>
struct Names<ParallelResidual> {
  static constexpr Named<ParallelResidual> kAll[] = {{ParallelResidual::None, "none"},
                                                     {ParallelResidual::TwoNorms, "two_norms"},
                                                     {ParallelResidual::OneNorm, "one_norm"}};
};

template <>
struct Names<Normalization> {
  static constexpr Named<Normalization> kAll[] = {{Normalization::LayerNorm, "LayerNorm"},
                                                  {Normalization::RmsNorm, "RMSNorm"}};
};

enum class GeluKind { Tanh, Erf };
template <>
struct Names<GeluKind> {
  static constexpr Named<GeluKind> kAll[] = {{GeluKind::Tanh, "tanh"}, {GeluKind::Erf, "erf"}};
};

// The factor of a low-rank adapter: alpha / rank, or alpha / sqrt(rank) (Kalajdzievski, arXiv 2312.03732).
enum class LoraScaling { Standard, RankStabilized };
template <>
struct Names<LoraScaling> {
  static constexpr Named<LoraScaling> kAll[] = {{LoraScaling::Standard, "standard"},
                                                {LoraScaling::RankStabilized, "rs"}};
};

// How memory holds frozen weights of linear layers: in the run's type, or quantized (ops/quantized.h).
enum class BaseWeights { AsRun, Int8, Nf4 };
template <>
struct Names<BaseWeights> {
  static constexpr Named<BaseWeights> kAll[] = {
      {BaseWeights::AsRun, "none"}, {BaseWeights::Int8, "int8"}, {BaseWeights::Nf4, "nf4"}};
};

// The initial values of the factor A of low-rank adapters; B is zero.
enum class LoraInit { Kaiming, Gaussian };
template <>
struct Names<LoraInit> {
  static constexpr Named<LoraInit> kAll[] = {{LoraInit::Kaiming, "kaiming"},
                                             {LoraInit::Gaussian, "gaussian"}};
};

// How the router of a mixture of experts turns logits into scores.
enum class RouterScore { Softmax, Sigmoid };
template <>
struct Names<RouterScore> {
  static constexpr Named<RouterScore> kAll[] = {{RouterScore::Softmax, "softmax"},
                                                {RouterScore::Sigmoid, "sigmoid"}};
};

template <>
struct Names<KeptChoices> {
  static constexpr Named<KeptChoices> kAll[] = {{KeptChoices::LargestGates, "probs"},
                                                {KeptChoices::FirstTokens, "position"}};
};

template <>
struct Names<RouterBalance> {
  static constexpr Named<RouterBalance> kAll[] = {{RouterBalance::SequenceAuxLoss, "seq_aux_loss"},
                                                  {RouterBalance::AuxLoss, "aux_loss"},
                                                  {RouterBalance::GlobalAuxLoss, "global_aux_loss"},
                                                  {RouterBalance::None, "none"}};
};

// The loss of a pair of answers (nn/samples/pair_loss.h), and whether it is relative to the log-likelihoods of a model.
enum class PairLossKind { Sigmoid, Ipo };
template <>
struct Names<PairLossKind> {
  static constexpr Named<PairLossKind> kAll[] = {{PairLossKind::Sigmoid, "sigmoid"},
                                                 {PairLossKind::Ipo, "ipo"}};
};
enum class PairReference { Model, None };
template <>
struct Names<PairReference> {
  static constexpr Named<PairReference> kAll[] = {{PairReference::Model, "model"},
                                                  {PairReference::None, "none"}};
};

// The head of a BERT (models/bert_tasks.h).
enum class HeadKind { Pretraining, Classes, Span };
template <>
struct Names<HeadKind> {
  static constexpr Named<HeadKind> kAll[] = {
      {HeadKind::Pretraining, "pretraining"}, {HeadKind::Classes, "classes"}, {HeadKind::Span, "span"}};
};

// What finetune trains a model for; each has an entry in the table of train/tuning/tuning_task.h.
enum class FinetuneTask { Classify, Squad, Chat, Lm, Dpo };
template <>
struct Names<FinetuneTask> {
  static constexpr Named<FinetuneTask> kAll[] = {{FinetuneTask::Classify, "classify"},
                                                 {FinetuneTask::Squad, "squad"},
                                                 {FinetuneTask::Chat, "chat"},
                                                 {FinetuneTask::Lm, "lm"},
                                                 {FinetuneTask::Dpo, "dpo"}};
};

// How conversations fill the samples of a finetuning run (tasks/chat/packing.h).
enum class ChatPacking { BestFit, None };
template <>
struct Names<ChatPacking> {
  static constexpr Named<ChatPacking> kAll[] = {{ChatPacking::BestFit, "best-fit"},
                                                {ChatPacking::None, "none"}};
};

// What happens to a conversation that is longer than a sample: its first or its last tokens are kept, or it is left out.
enum class TruncationMode { KeepStart, KeepEnd, Drop };
template <>
struct Names<TruncationMode> {
  static constexpr Named<TruncationMode> kAll[] = {{TruncationMode::KeepStart, "keep_start"},
                                                   {TruncationMode::KeepEnd, "keep_end"},
                                                   {TruncationMode::Drop, "drop"}};
};

// ---- Layout and precision of a run ----

// How transformer layers are divided among pipeline stages if no options give the numbers of layers.
enum class PipelineCut { Cost, Even };
template <>
struct Names<PipelineCut> {
  static constexpr Named<PipelineCut> kAll[] = {{PipelineCut::Cost, "cost"}, {PipelineCut::Even, "even"}};
};

template <>
struct Names<ContextExchange> {
  static constexpr Named<ContextExchange> kAll[] = {{ContextExchange::AllGather, "all_gather"},
                                                    {ContextExchange::AllToAll, "a2a"},
                                                    {ContextExchange::Ring, "p2p"}};
};

template <>
struct Names<TokenDispatcher> {
  static constexpr Named<TokenDispatcher> kAll[] = {{TokenDispatcher::AllToAll, "alltoall"},
                                                    {TokenDispatcher::AllGather, "allgather"}};
};

enum class ComputeDevice { Cpu, Cuda, Auto };
template <>
struct Names<ComputeDevice> {
  static constexpr Named<ComputeDevice> kAll[] = {
      {ComputeDevice::Cpu, "cpu"}, {ComputeDevice::Cuda, "cuda"}, {ComputeDevice::Auto, "auto"}};
};

// The extent to which activations are recomputed in backward instead of kept (nn/recompute.h).
enum class RecomputeGranularity { None, Selective, Full };
template <>
struct Names<RecomputeGranularity> {
  static constexpr Named<RecomputeGranularity> kAll[] = {{RecomputeGranularity::None, "none"},
                                                         {RecomputeGranularity::Selective, "selective"},
                                                         {RecomputeGranularity::Full, "full"}};
};

// When the gradients of a step are summed over data-parallel ranks: after the last micro-batch, or after each, so that
// a rank holds whole gradients of only a few units at a time.
enum class ReducePolicy { Once, Each };
template <>
struct Names<ReducePolicy> {
  static constexpr Named<ReducePolicy> kAll[] = {{ReducePolicy::Once, "once"}, {ReducePolicy::Each, "each"}};
};

enum class LrDecayStyle { Constant, Linear, Cosine, InverseSquareRoot, Wsd, Polynomial, Parabola };
template <>
struct Names<LrDecayStyle> {
  static constexpr Named<LrDecayStyle> kAll[] = {
      {LrDecayStyle::Constant, "constant"}, {LrDecayStyle::Linear, "linear"},
      {LrDecayStyle::Cosine, "cosine"},     {LrDecayStyle::InverseSquareRoot, "inverse-square-root"},
      {LrDecayStyle::Wsd, "WSD"},           {LrDecayStyle::Polynomial, "polynomial"},
      {LrDecayStyle::Parabola, "parabola"}};
};

// The course of the weight decay between its first and its last value.
enum class WeightDecayStyle { Constant, Linear, Cosine };
template <>
struct Names<WeightDecayStyle> {
  static constexpr Named<WeightDecayStyle> kAll[] = {{WeightDecayStyle::Constant, "constant"},
                                                     {WeightDecayStyle::Linear, "linear"},
                                                     {WeightDecayStyle::Cosine, "cosine"}};
};

enum class WsdDecayStyle { Exponential, Linear, Cosine, MinusSqrt };
template <>
struct Names<WsdDecayStyle> {
  static constexpr Named<WsdDecayStyle> kAll[] = {{WsdDecayStyle::Exponential, "exponential"},
                                                  {WsdDecayStyle::Linear, "linear"},
                                                  {WsdDecayStyle::Cosine, "cosine"},
                                                  {WsdDecayStyle::MinusSqrt, "minus_sqrt"}};
};

// adam is AdamW, as in Megatron-LM. muon is Muon for matrices and AdamW for all other parameters.
enum class OptimizerKind { Adam, Lamb, Lars, Sgd, Adagrad, Muon };
template <>
struct Names<OptimizerKind> {
  static constexpr Named<OptimizerKind> kAll[] = {
      {OptimizerKind::Adam, "adam"}, {OptimizerKind::Lamb, "lamb"},       {OptimizerKind::Lars, "lars"},
      {OptimizerKind::Sgd, "sgd"},   {OptimizerKind::Adagrad, "adagrad"}, {OptimizerKind::Muon, "muon"}};
};

// The factor of Muon's direction, an orthogonal matrix of r rows and c columns: sqrt(max(r, c)), sqrt(r / c), or
// sqrt(max(1, r / c)).
enum class MuonScaleMode { Spectral, UnitRmsNorm, ShapeScaling };
template <>
struct Names<MuonScaleMode> {
  static constexpr Named<MuonScaleMode> kAll[] = {{MuonScaleMode::Spectral, "spectral"},
                                                  {MuonScaleMode::UnitRmsNorm, "unit_rms_norm"},
                                                  {MuonScaleMode::ShapeScaling, "shape_scaling"}};
};

// The scales of factors of products in 8 bits.
enum class Fp8Recipe { Tensorwise, Blockwise };
template <>
struct Names<Fp8Recipe> {
  static constexpr Named<Fp8Recipe> kAll[] = {{Fp8Recipe::Tensorwise, "tensorwise"},
                                              {Fp8Recipe::Blockwise, "blockwise"}};
};

// The type in which a moment of Adam is stored.
enum class MomentType { Fp32, Bf16, Fp8 };
template <>
struct Names<MomentType> {
  static constexpr Named<MomentType> kAll[] = {
      {MomentType::Fp32, "fp32"}, {MomentType::Bf16, "bf16"}, {MomentType::Fp8, "fp8"}};
};

// Whether a step multiplies the rate of each tensor by a ratio of norms of the whole tensor.
constexpr bool needs_whole_tensors(OptimizerKind kind) {
  return kind == OptimizerKind::Lamb || kind == OptimizerKind::Lars;
}

// ---- Data and files ----

enum class TokenizerType {
  Byte,
  SentencePiece,
  HuggingFace,
  Gpt2Bpe,         // a vocabulary and a list of merges, as GPT-2 was published
  WordPieceLower,  // a vocabulary of BERT, for text in lower case
  WordPieceCased,  // a vocabulary of BERT, for text as it is
  Tiktoken,        // bytes of tokens in the order of their merges: files of tiktoken, Mistral and Megatron-LM
  Null,            // none: the data are token ids already
};
template <>
struct Names<TokenizerType> {
  static constexpr Named<TokenizerType> kAll[] = {{TokenizerType::Byte, "byte"},
                                                  {TokenizerType::SentencePiece, "sentencepiece"},
                                                  {TokenizerType::HuggingFace, "huggingface"},
                                                  {TokenizerType::Gpt2Bpe, "gpt2-bpe"},
                                                  {TokenizerType::WordPieceLower, "wordpiece-lower"},
                                                  {TokenizerType::WordPieceCased, "wordpiece-cased"},
                                                  {TokenizerType::Tiktoken, "tiktoken"},
                                                  {TokenizerType::Null, "null"}};
};

// Published patterns by which tokenizers of tiktoken cut text into words (tokenize/tiktoken_patterns.h).
enum class TiktokenPattern { Gpt2, Cl100k, O200k, Llama3, Qwen, Kimi, V1, V2 };
template <>
struct Names<TiktokenPattern> {
  static constexpr Named<TiktokenPattern> kAll[] = {
      {TiktokenPattern::Gpt2, "gpt2"},   {TiktokenPattern::Cl100k, "cl100k"},
      {TiktokenPattern::O200k, "o200k"}, {TiktokenPattern::Llama3, "llama3"},
      {TiktokenPattern::Qwen, "qwen"},   {TiktokenPattern::Kimi, "kimi"},
      {TiktokenPattern::V1, "v1"},       {TiktokenPattern::V2, "v2"}};
};

// The treatment of a special token's text, such as "<|endoftext|>", inside a text to be tokenized.
enum class SpecialTokensInText {
  Encode,  // it becomes the token
  Text,    // it is text like any other
  Refuse,  // it is an error
};
template <>
struct Names<SpecialTokensInText> {
  static constexpr Named<SpecialTokensInText> kAll[] = {{SpecialTokensInText::Encode, "encode"},
                                                        {SpecialTokensInText::Text, "text"},
                                                        {SpecialTokensInText::Refuse, "refuse"}};
};

// The parts of a data set.
enum class Split { Train, Valid, Test };
template <>
struct Names<Split> {
  static constexpr Named<Split> kAll[] = {
      {Split::Train, "train"}, {Split::Valid, "valid"}, {Split::Test, "test"}};
};

// Whether a record that cannot be read ends the run, or is skipped and counted up to a limit.
enum class OnBadRecord { Stop, Skip };
template <>
struct Names<OnBadRecord> {
  static constexpr Named<OnBadRecord> kAll[] = {{OnBadRecord::Stop, "stop"}, {OnBadRecord::Skip, "skip"}};
};

enum class OnSaveError { Stop, Continue };
template <>
struct Names<OnSaveError> {
  static constexpr Named<OnSaveError> kAll[] = {{OnSaveError::Stop, "stop"},
                                                {OnSaveError::Continue, "continue"}};
};

// The reaction to a spike of the loss (run/health/loss_watch.h).
enum class OnLossSpike { Ignore, Stop, Rollback };
template <>
struct Names<OnLossSpike> {
  static constexpr Named<OnLossSpike> kAll[] = {
      {OnLossSpike::Ignore, "ignore"}, {OnLossSpike::Stop, "stop"}, {OnLossSpike::Rollback, "rollback"}};
};

// ---- Other commands ----

enum class BenchPart { Step, Gemm, Attention, Comm, Blocks, Hardware };
template <>
struct Names<BenchPart> {
  static constexpr Named<BenchPart> kAll[] = {
      {BenchPart::Step, "step"}, {BenchPart::Gemm, "gemm"},     {BenchPart::Attention, "attention"},
      {BenchPart::Comm, "comm"}, {BenchPart::Blocks, "blocks"}, {BenchPart::Hardware, "hardware"}};
};

// The format of the file that --schedule-csv names.
enum class PlanFormat { Trifold, Torch, TorchComms };
template <>
struct Names<PlanFormat> {
  static constexpr Named<PlanFormat> kAll[] = {{PlanFormat::Trifold, "trifold"},
                                               {PlanFormat::Torch, "torch"},
                                               {PlanFormat::TorchComms, "torch-comms"}};
};

// The axes of a layout search, in the order in which they are chosen (config/commands/search_axes.h).
enum class SearchAxis {
  Tensor,
  Context,
  Exchange,
  Pipeline,
  Expert,
  ExpertTensor,
  Schedule,
  Stages,
  HeadParts,
  MicroBatch,
  SequenceParallel,
  Zero,
  Recompute
};
template <>
struct Names<SearchAxis> {
  static constexpr Named<SearchAxis> kAll[] = {{SearchAxis::Tensor, "tensor"},
                                               {SearchAxis::Context, "context"},
                                               {SearchAxis::Exchange, "exchange"},
                                               {SearchAxis::Pipeline, "pipeline"},
                                               {SearchAxis::Expert, "expert"},
                                               {SearchAxis::ExpertTensor, "expert-tensor"},
                                               {SearchAxis::Schedule, "schedule"},
                                               {SearchAxis::Stages, "stages"},
                                               {SearchAxis::HeadParts, "head-parts"},
                                               {SearchAxis::MicroBatch, "micro-batch"},
                                               {SearchAxis::SequenceParallel, "sequence-parallel"},
                                               {SearchAxis::Zero, "zero"},
                                               {SearchAxis::Recompute, "recompute"}};
};

}  // namespace trifold
