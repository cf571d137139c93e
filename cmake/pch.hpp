// Precompiled header of all targets: only third-party and standard headers that change never.
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

#include <torch/script.h>
#include <torch/torch.h>

#include <spdlog/spdlog.h>
#include <nlohmann/json.hpp>
