# One flow over 1 Mbit/s that loses the data packets with the given numbers, on ns-2.35: ns one_flow.tcl TCP "NUMBERS" SECONDS TRACE
foreach {tcp drops seconds trace} $argv break
set window 30
set buffer 1000
set seed 1
source [file join [file dirname [info script]] common.tcl]
set ns [new Simulator]
foreach node {s r1 r2 d} { set $node [$ns node] }
$ns duplex-link $s $r1 10Mb 24ms DropTail
$ns duplex-link $r1 $r2 1Mb 1ms DropTail
$ns duplex-link $r2 $d 10Mb 25ms DropTail
set loss [new ErrorModel/List]
$loss droplist $drops
$loss drop-target [new Agent/Null]
$ns lossmodel $loss $s $r1
$ns trace-queue $s $r1 [open $trace w]
session $s $d
$ns at $seconds "exit 0"
$ns run
