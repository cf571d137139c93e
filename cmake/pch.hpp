// Precompiled header of all targets: only third-party and standard headers that never change.
//
// Not torch/torch.h: GCC instantiates at the end of every source what the header's inline functions
// ask of templates, and for that one it takes 7 s, whether the source uses any of it or not. The
// few that need modules or optimizers include it on top.
#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include <ATen/ATen.h>
#include <spdlog/spdlog.h>
#include <caf/all.hpp>
#include <nlohmann/json.hpp>
