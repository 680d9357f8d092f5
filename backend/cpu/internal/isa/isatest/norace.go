//go:build !race

package isatest

const raceDetector = false
