# Drops of ten connections that start one after the other, behind DRR over 1 Mbit/s, on ns-2.35: ns drr_drops.tcl CASE BUFFER WINDOW TCP SECONDS TRACE
foreach {case buffer window tcp seconds trace} $argv break
set seed 1
source [file join [file dirname [info script]] common.tcl]
set start [new RandomVariable/Constant]
set ns [new Simulator]
set r1 [$ns node]
set r2 [$ns node]
$ns simplex-link $r1 $r2 1Mb 1ms DRR
$ns simplex-link $r2 $r1 1Mb 1ms DropTail
$ns queue-limit $r1 $r2 $buffer
$ns trace-queue $r1 $r2 [open $trace w]
for {set i 0} {$i < 10} {incr i} {
  set rtt 0.5
  if {$case == "c" && $i == 0} { set rtt 1.0 }
  if {$case == "d" && $i >= 5} { set rtt 0.02 }
  set s [$ns node]
  set d [$ns node]
  $ns duplex-link $s $r1 10Mb [expr $rtt / 2 - 0.002]s DropTail
  $ns duplex-link $r2 $d 10Mb 1ms DropTail
  $start set val_ [expr 0.00037 + 0.0913 * $i]
  [session $s $d] set fid_ $i
}
$ns at $seconds "exit 0"
$ns run
