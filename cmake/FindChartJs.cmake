# Finds Chart.js, the library that draws the charts of `trace --html` and is embedded in the program.
# Debian: libjs-chart.js. Defines ChartJs_FILE and ChartJs_VERSION.
find_file(ChartJs_FILE NAMES chart.min.js chart.umd.min.js chart.umd.js Chart.min.js
          PATHS /usr/share/javascript /usr/share/nodejs
          PATH_SUFFIXES chart.js chart.js/dist chartjs
          DOC "Chart.js 3 or newer, one file for browsers")
if(ChartJs_FILE)
  file(READ ${ChartJs_FILE} head LIMIT 400)
  if(head MATCHES "Chart\\.js v([0-9.]+)")
    set(ChartJs_VERSION ${CMAKE_MATCH_1})
  endif()
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ChartJs REQUIRED_VARS ChartJs_FILE VERSION_VAR ChartJs_VERSION
    REASON_FAILURE_MESSAGE "install libjs-chart.js (scripts/setup does), or set ChartJs_FILE")
mark_as_advanced(ChartJs_FILE)
