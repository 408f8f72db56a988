// Kimi-K2: DeepSeek-V3 under another name. transformers opens it with the code that is next to its weights.
#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

const HuggingFaceFamily& kimi_k2_family() {
  static const HuggingFaceFamily kFamily = [] {
    HuggingFaceFamily family = deepseek_v3_family();
    family.name = "Kimi-K2";
    family.type = "kimi_k2";
    family.write = [](const ModelConfig& model) {
      nlohmann::json config = deepseek_v3_family().write(model);
      config["model_type"] = "kimi_k2";
      return config;
    };
    return family;
  }();
  return kFamily;
}

}  // namespace trifold
