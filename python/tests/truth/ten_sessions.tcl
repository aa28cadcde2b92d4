# Ten sessions over 1 Mbit/s on ns-2.35: ns ten_sessions.tcl CASE VARIANT BUFFER WINDOW TCP QUEUE SEED
# Prints the sessions' goodputs [bit/s], a bar, then the mean queue [packets], the drops and the departures of 2000 s.
foreach {case variant buffer window tcp queue seed} $argv break
source [file join [file dirname [info script]] common.tcl]
Queue/RED set thresh_ [expr $buffer / 4.0]
Queue/RED set maxthresh_ [expr 3 * $buffer / 4.0]
Queue/RED set q_weight_ 0.002
Queue/RED set linterm_ 10
if {$variant == "minrto_1s" || $variant == "era"} { Agent/TCP set minrto_ 1.0 }
if {$variant == "era"} { Agent/TCP set singledup_ 0; Agent/TCP set tcpTick_ 0.1 }
if {$variant == "overhead_8.32ms"} { Agent/TCP set overhead_ 0.00832 }

set ns [new Simulator]
set r1 [$ns node]
set r2 [$ns node]
$ns simplex-link $r1 $r2 1Mb 1ms $queue
$ns simplex-link $r2 $r1 1Mb 1ms DropTail
$ns queue-limit $r1 $r2 $buffer
for {set i 0} {$i < 10} {incr i} {
  set rtt 0.5
  if {$case == "c" && $i == 0} { set rtt 1.0 }
  if {$case == "d" && $i >= 5} { set rtt [expr {$variant == "rttlow_10ms" ? 0.01 : 0.02}] }
  set s($i) [$ns node]
  set d($i) [$ns node]
  $ns duplex-link $s($i) $r1 10Mb [expr $rtt / 2 - 0.002]s DropTail
  $ns duplex-link $r2 $d($i) 10Mb 1ms DropTail
}
if {$case == "a" || $case == "b"} {
  set loss [new ErrorModel]
  $loss unit pkt
  $loss set rate_ [expr {$case == "a" ? 0.10 : 0.01}]
  $loss ranvar [new RandomVariable/Uniform]
  $loss drop-target [new Agent/Null]
  if {$variant == "loss_after_bottleneck" || $variant == "era"} {
    $ns lossmodel $loss $r2 $d(0)
  } else {
    $ns lossmodel $loss $s(0) $r1
  }
}
set monitor [$ns monitor-queue $r1 $r2 ""]
for {set i 0} {$i < 10} {incr i} { set t($i) [session $s($i) $d($i)] }
$ns at 2000 "finish"
proc finish {} {
  global t monitor
  set goodputs {}
  for {set i 0} {$i < 10} {incr i} { lappend goodputs [expr ([$t($i) set ack_] + 1) * 8000.0 / 2000] }
  set area [[$monitor get-pkts-integrator] set sum_]
  puts "$goodputs | [expr $area / 2000] [$monitor set pdrops_] [$monitor set pdepartures_]"
  exit 0
}
$ns run
