// Enums of options that are passed unchanged to operations or layers. config/fields/choices.h has the names of their
// values on the command line.
#pragma once

#include <cstdint>

namespace trifold {

enum class Normalization : uint8_t { LayerNorm, RmsNorm };

// The choices that an expert with limited capacity keeps: the ones with the largest gates (NaN counts as infinity, and
// of equal gates the earlier one comes first), or the ones of the first tokens.
enum class KeptChoices : uint8_t { LargestGates, FirstTokens };

// The tokens whose choices the balancing loss of experts counts: the tokens of each sequence; of each micro-batch, so
// that the loss depends on the micro-batch size; or of the previous global batch, for Megatron-LM's `global_aux_loss`.
// None: no balancing loss.
enum class RouterBalance : uint8_t { SequenceAuxLoss, AuxLoss, GlobalAuxLoss, None };

// How rows are dispatched to experts on other ranks. AllToAll: each row is sent to its expert's rank. AllGather: every
// rank gathers all tokens and selects its rows, which sends less if fewer ranks share the experts than a token has
// choices. Combine is always all-to-all, so that a token's rows are summed in the same order.
enum class TokenDispatcher : uint8_t { AllToAll, AllGather };

// What context-parallel ranks exchange for attention. AllGather: keys and values, gathered before attention. Ring: keys
// and values, sent around a ring during attention. AllToAll: heads, so that each rank has some heads for all positions.
enum class ContextExchange : uint8_t { AllGather, AllToAll, Ring };

}  // namespace trifold
