// Choices that a user makes by an option and that operations or layers take as they are. config/fields/choices.h gives
// their values the names that they have on the command line.
#pragma once

#include <cstdint>

namespace trifold {

enum class Normalization : uint8_t { LayerNorm, RmsNorm };

// Which choices an expert keeps if it takes only some of a sequence's: those with the largest gates (a gate that is no
// number counts as infinite), the earlier one of equal gates; or those of the first tokens.
enum class KeptChoices : uint8_t { LargestGates, FirstTokens };

// The tokens over which the loss that balances the load of experts counts choices: those of each sequence; of each
// micro-batch, so that it depends on their size; or of the global batch before this one, in the place of Megatron-LM's
// `global_aux_loss`. None: there is no such loss.
enum class RouterBalance : uint8_t { SequenceAuxLoss, AuxLoss, GlobalAuxLoss, None };

// How rows reach experts on other ranks: each is sent to its expert's rank; or all tokens are gathered by every rank, which
// picks its rows, and moves less where fewer ranks share experts than a token has choices. Outputs always come back all
// to all, so that a token's rows are added up in the same order.
enum class TokenDispatcher : uint8_t { AllToAll, AllGather };

// The tensors that context-parallel ranks exchange for attention: keys and values, gathered before the product or sent
// around a ring during it; or heads, so that each rank has some of them for all positions.
enum class ContextExchange : uint8_t { AllGather, AllToAll, Ring };

}  // namespace trifold
