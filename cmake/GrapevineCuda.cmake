# CUDA: the raw kernels and NCCL (gpu/cuda, no LibTorch), and their glue to LibTorch (gpu/torch_cuda).
#   GRAPEVINE_CUDA=AUTO  what can be built is built; a status line says what, and why not the rest
#                  ON    the kernels are wanted: an error where they cannot be built
#                  OFF   nothing is looked for
# Sets GRAPEVINE_HAVE_CUDA and GRAPEVINE_HAVE_TORCH_CUDA. CUDA 12 or newer.
set(GRAPEVINE_CUDA AUTO CACHE STRING "Build the CUDA kernels: AUTO, ON or OFF")
set_property(CACHE GRAPEVINE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(GRAPEVINE_HAVE_CUDA FALSE)
set(GRAPEVINE_HAVE_TORCH_CUDA FALSE)

# Why the kernels cannot be built, in `out`; empty where they can. A compiler that does not take the
# host compiler, or finds no C++17, is one that does not work.
function(grapevine_cuda_obstacle out)
  set(${out} "" PARENT_SCOPE)
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(${out} "no nvcc that works with ${CMAKE_CXX_COMPILER} (put it on PATH, or set CMAKE_CUDA_COMPILER)"
        PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE said ERROR_QUIET)
  string(REGEX MATCH "release ([0-9]+)" matched "${said}")
  if(matched AND CMAKE_MATCH_1 LESS 12)
    set(${out} "${CMAKE_CUDA_COMPILER} is of CUDA ${CMAKE_MATCH_1}: 12 or newer is needed" PARENT_SCOPE)
  endif()
endfunction()

if(GRAPEVINE_CUDA STREQUAL "OFF")
  message(STATUS "CUDA kernels: off (GRAPEVINE_CUDA=OFF)")
else()
  grapevine_cuda_obstacle(obstacle)
  if(obstacle AND GRAPEVINE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "GRAPEVINE_CUDA=ON, but there is ${obstacle}")
  elseif(obstacle)
    message(STATUS "CUDA kernels: not built, ${obstacle}")
  else()
    add_subdirectory(${CMAKE_SOURCE_DIR}/gpu/cuda ${CMAKE_BINARY_DIR}/gpu_cuda)
    set(GRAPEVINE_HAVE_CUDA TRUE)
  endif()
endif()

# The glue, where the LibTorch that was found has CUDA. Programs put it in place by a call
# (gpu/torch_cuda/register.hpp).
if(GRAPEVINE_HAVE_CUDA)
  if(TARGET torch_cuda OR TORCH_CUDA_LIBRARIES)
    set(GRAPEVINE_HAVE_TORCH_CUDA TRUE)
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/gpu/torch_cuda/*.cpp)
    add_library(grapevine_torch_cuda STATIC ${sources})
    target_link_libraries(grapevine_torch_cuda PUBLIC grapevine_options grapevine_gpu grapevine_cuda)
    target_compile_definitions(grapevine_torch_cuda PUBLIC GRAPEVINE_TORCH_CUDA)
    grapevine_pch(grapevine_torch_cuda)
    message(STATUS "CUDA for LibTorch: built")
  else()
    message(STATUS "CUDA for LibTorch: not built, the LibTorch in ${TORCH_INSTALL_PREFIX} is for the CPU")
  endif()
endif()
