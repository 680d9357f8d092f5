//go:build race

package keras

const raceDetector = true
