# Every dependency is a distribution package (scripts/packages.txt); LibTorch may also come from
# CMAKE_PREFIX_PATH, e.g. $(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)').
find_package(Threads REQUIRED)
# The configuration of a LibTorch with CUDA enables the CUDA language, adds flags for GPUs that it
# guesses (some of which the installed nvcc may no longer know) to every CUDA object of the caller,
# and unsets the architectures. Ours are chosen in GrapevineCuda.cmake.
set(GRAPEVINE_OWN_CUDA_FLAGS "${CMAKE_CUDA_FLAGS}")
set(GRAPEVINE_OWN_CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
find_package(Torch REQUIRED)
set(CMAKE_CUDA_FLAGS "${GRAPEVINE_OWN_CUDA_FLAGS}")
if(GRAPEVINE_OWN_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "${GRAPEVINE_OWN_CUDA_ARCHITECTURES}")
else()
  unset(CMAKE_CUDA_ARCHITECTURES)
  unset(CMAKE_CUDA_ARCHITECTURES CACHE)  # the compiler's default, as the language was enabled
endif()
find_package(CAF REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL 3.0 REQUIRED)
find_package(prometheus-cpp REQUIRED)
find_package(Protobuf REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(httplib REQUIRED IMPORTED_TARGET cpp-httplib)
find_package(ISAL REQUIRED)
# Optional: without it the ucx transport says at run time that it is not built in.
find_package(UCX QUIET)
if(GRAPEVINE_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
endif()

# LibTorch's own target leaks its headers as -I (dozens of warnings) and its preferred flags; this
# wraps them as system headers. TORCH_LIBRARIES is not used: TorchConfig looks for c10 and c10_cuda
# in the system's folders first, and so mixes two releases where the distribution's is installed too.
add_library(torch_interface INTERFACE)
# A LibTorch from a wheel brings the headers of fmt and protobuf that it was built with. What we build
# must go on to see those of the libraries that it links, so they go first, alone in a folder.
list(GET TORCH_INCLUDE_DIRS 0 GRAPEVINE_TORCH_INCLUDE)
function(grapevine_put_first headers include)
  if(NOT EXISTS ${GRAPEVINE_TORCH_INCLUDE}/${headers} OR include STREQUAL GRAPEVINE_TORCH_INCLUDE)
    return()
  endif()
  set(first ${CMAKE_BINARY_DIR}/first)
  get_filename_component(parent ${first}/${headers} DIRECTORY)
  file(MAKE_DIRECTORY ${parent})
  file(CREATE_LINK ${include}/${headers} ${first}/${headers} SYMBOLIC)
  target_include_directories(torch_interface SYSTEM BEFORE INTERFACE ${first})
endfunction()
if(TARGET fmt::fmt)
  get_target_property(GRAPEVINE_FMT_INCLUDE fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
  list(GET GRAPEVINE_FMT_INCLUDE 0 GRAPEVINE_FMT_INCLUDE)
  grapevine_put_first(fmt ${GRAPEVINE_FMT_INCLUDE})
endif()
list(GET Protobuf_INCLUDE_DIRS 0 GRAPEVINE_PROTOBUF_INCLUDE)
grapevine_put_first(google/protobuf ${GRAPEVINE_PROTOBUF_INCLUDE})
target_include_directories(torch_interface SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
target_link_libraries(torch_interface INTERFACE torch torch_library c10 Threads::Threads)
separate_arguments(GRAPEVINE_TORCH_FLAGS UNIX_COMMAND "${TORCH_CXX_FLAGS}")
target_compile_options(torch_interface INTERFACE ${GRAPEVINE_TORCH_FLAGS})
