# Every dependency is a distribution package (scripts/packages.txt); LibTorch may also come from
# CMAKE_PREFIX_PATH, e.g. $(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)').
find_package(Threads REQUIRED)
find_package(Torch REQUIRED)
find_package(CAF REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
find_package(ZLIB REQUIRED)
# Optional: without it the ucx transport says at run time that it is not built in.
find_package(ucx QUIET)
if(GRAPEVINE_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
endif()

# LibTorch's own target leaks its headers as -I (dozens of warnings) and its preferred flags; this
# wraps them as system headers.
add_library(torch_interface INTERFACE)
target_include_directories(torch_interface SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
target_link_libraries(torch_interface INTERFACE ${TORCH_LIBRARIES} Threads::Threads)
separate_arguments(GRAPEVINE_TORCH_FLAGS UNIX_COMMAND "${TORCH_CXX_FLAGS}")
target_compile_options(torch_interface INTERFACE ${GRAPEVINE_TORCH_FLAGS})
